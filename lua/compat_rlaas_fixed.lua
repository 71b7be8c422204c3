-- compat_rlaas_fixed.lua: as compat_window_start, but the key names the window's number by the server's seconds,
-- and EXPIRE comes with the first hit. limit a, window b ms (whole seconds). Key: <base>:<seconds / window>.
--@state s1 own counts
--@prepare
local name = fmt(':%.0f', floor(floor(now / 1000000) / (b / 1000)))
local ttl = fmt('%.0f', b / 1000)
--@key
key = key .. name
--@view compat_window_start
--@room compat_window_start
--@store
if call('INCRBY', key, fmt('%.0f', units)) == units then call('EXPIRE', key, ttl) end
