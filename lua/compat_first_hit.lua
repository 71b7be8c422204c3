-- compat_first_hit.lua: INCR with an expiry set once; denied checks do not count; C counterpart in src/limit/compat.c.
-- limit a, window b ms (whole seconds). Key: the base key, a string. The window ends when the key expires; a
-- key without an expiry gets one.
--@prepare
px = fmt('%.0f', b / 1000)
second, start, since = 0, now_ms + b, 1e300
--@view
more = -2 -- PTTL
local value = try('GET', key)
if type(value) == 'table' then
    if not find(value.err, 'WRONGTYPE', 1, true) then return value end
    used = -1
elseif value then
    local units = #value <= 15 and find(value, '^%-?%d+$') and tonumber(value)
    used = not units and -1 or units > 0 and units or 0
    more = call('PTTL', key)
    stale = used >= 0 and more == -1 and count > 0
    -- the key lives through the last millisecond of its expiry
    extra = now_ms + (more >= 0 and more ~= b and more + 1 or b)
end
--@save
if charge > 0 then call('INCRBY', key, fmt('%.0f', charge)) end
if more < 0 then call('EXPIRE', key, px) end
