-- compat_window_start.lua: INCR of a key that has its window's start; counts every request; C counterpart in
-- src/limit/compat.c. limit a, window b ms. Key: <base>:<start ms>, a string, TTL window + 1 s, set by the first INCR.
-- Another key of the batch may be a sorted set of the same name, written since this one was read.
--@prepare
base = fmt(':%.0f', floor(now_ms / b) * b)
px = fmt('%.0f', b + 1000)
since, counted = 1e300, 1e300
--@view
key = key .. base
local value = try('GET', key)
if type(value) == 'table' then
    refused = value
elseif value then
    local units = #value <= 15 and (find(value, '^%-?[1-9]%d*$') or value == '0') and tonumber(value) -- as INCRBY takes it
    used, more = not units and -1 or units > 0 and units or 0, 1
end
--@save
key = K[i] .. base
local after = try('INCRBY', key, fmt('%.0f', charge))
if after == charge then
    call('PEXPIRE', key, px)
elseif type(after) == 'table' then
    if not find(after.err, 'WRONGTYPE', 1, true) then error(after) end
    done = false
end
