-- compat_window_start.lua: INCR of a key that names its window's start, every request counted; twin in
-- src/limit/compat.c. limit a, window b ms. Key: <base>:<start ms>, a string, TTL window + 1 s with every INCR.
--@state s1 own counts
--@prepare
local name = fmt(':%.0f', floor(floor(now / 1000) / b) * b)
local ttl = fmt('%.0f', b + 1000)
--@key
key = key .. name
--@view
s1, more, keep = 0, 0, 0
local value = try('GET', key)
if type(value) == 'table' then
    if not find(value.err, 'WRONGTYPE', 1, true) then return value end
    s1 = -1
elseif value then
    local count = #value <= 15 and find(value, '^%-?%d+$') and tonumber(value)
    s1 = not count and -1 or count > 0 and count or 0
    keep = 1
end
--@room
room = a - s1
--@store
call('INCRBY', key, fmt('%.0f', units))
call('PEXPIRE', key, ttl)
