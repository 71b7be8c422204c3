-- compat_endpoint_window.lua: as compat_first_hit, but the first denied request is counted: the count stops one
-- above the limit. Twin in src/limit/compat.c.
--@state s1 s2 own counts
--@prepare compat_first_hit
--@view compat_first_hit
--@room compat_first_hit
--@store
if units > a + 1 - s1 then units = a + 1 - s1 end
if units > 0 then call('INCRBY', key, fmt('%.0f', units)) end
if more < 0 then call('EXPIRE', key, ttl) end
