-- compat_first_hit.lua: INCR with an expiry set once, what is denied is not counted; twin in src/limit/compat.c.
-- limit a, window b ms (whole seconds). Key: the base key, a string. The window is the key's life; a key that
-- somebody left without expiry gets one.
--@state s1 s2 own
--@prepare
local now_ms = floor(now / 1000)
local ttl = fmt('%.0f', b / 1000)
--@view
s1, s2, more, keep = 0, 0, -2, 0 -- more: PTTL
local value = try('GET', key)
if type(value) == 'table' then
    if not find(value.err, 'WRONGTYPE', 1, true) then return value end
    s1 = -1
elseif value then
    local count = #value <= 15 and find(value, '^%-?%d+$') and tonumber(value)
    s1 = not count and -1 or count > 0 and count or 0
    more, keep = call('PTTL', key), 1
    if more == -1 and k > 0 then keep = -1 end
    -- the key lives on for the whole last millisecond
    s2 = now_ms + (more >= 0 and more ~= b and more + 1 or b)
end
--@room
room = a - s1
--@store
if units > 0 then call('INCRBY', key, fmt('%.0f', units)) end
if more < 0 then call('EXPIRE', key, ttl) end
