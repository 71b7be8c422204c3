-- compat_endpoint_window.lua: like compat_first_hit, but counts the first denied request: the count stops one
-- above the limit. C counterpart in src/limit/compat.c.
--@prepare
px = fmt('%.0f', b / 1000)
second, start, since, counted = 0, now_ms + b, 1e300, 1e300
--@view compat_first_hit
--@save
if charge > a + 1 - (used - charge) then charge = a + 1 - (used - charge) end
local after = charge <= 0 or try('INCRBY', key, fmt('%.0f', charge))
if type(after) == 'table' then
    if not find(after.err, 'WRONGTYPE', 1, true) then error(after) end
    done = false
elseif more < 0 then
    call('EXPIRE', key, px)
end
