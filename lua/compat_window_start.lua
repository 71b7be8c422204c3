-- compat_window_start.lua: INCR of a key that has its window's start; counts every request; C counterpart in
-- src/limit/compat.c. limit a, window b ms. Key: <base>:<start ms>, a string, TTL window + 1 s, set by the first INCR.
--@prepare
base = fmt(':%.0f', floor(now_ms / b) * b)
px = fmt('%.0f', b + 1000)
since, counted = 1e300, 1e300
--@view
key = key .. base
local value = try('GET', key)
if type(value) == 'table' then
    if not find(value.err, 'WRONGTYPE', 1, true) then return value end
    used = -1
elseif value then
    local units = #value <= 15 and find(value, '^%-?%d+$') and tonumber(value)
    used, more = not units and -1 or units > 0 and units or 0, 1
end
--@save
key = K[i] .. base
if call('INCRBY', key, fmt('%.0f', charge)) == charge then call('PEXPIRE', key, px) end
