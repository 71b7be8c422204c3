-- compat_first_hit.lua: INCR with an expiry set once; denied checks do not count; C counterpart in src/limit/compat.c.
-- limit a, window b ms (whole seconds). Key: the base key, a string. The window ends when the key expires; a
-- key without an expiry gets one. Another key of the batch may be a sorted set of the same name, written since this one was
-- read.
--@prepare
px = fmt('%.0f', b / 1000)
second, start, since = 0, now_ms + b, 1e300
--@view
more = -2 -- PTTL
local value = try('GET', key)
if type(value) == 'table' then
    refused = value
elseif value then
    local units = #value <= 15 and (find(value, '^%-?[1-9]%d*$') or value == '0') and tonumber(value) -- as INCRBY takes it
    used = not units and -1 or units > 0 and units or 0
    more = call('PTTL', key)
    stale = used >= 0 and more == -1 and count > 0
    -- the key lives through the last millisecond of its expiry
    extra = now_ms + (more >= 0 and more ~= b and more + 1 or b)
    if extra > 9007199254740991 then extra = 9007199254740991 end
end
--@save
local after = charge <= 0 or try('INCRBY', key, fmt('%.0f', charge))
if type(after) == 'table' then
    if not find(after.err, 'WRONGTYPE', 1, true) then error(after) end
    done = false
elseif more < 0 then
    call('EXPIRE', key, px)
end
