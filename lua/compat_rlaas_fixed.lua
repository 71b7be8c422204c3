-- compat_rlaas_fixed.lua: like compat_window_start, but the key has the window's number by the server's seconds,
-- and the first hit sets EXPIRE. limit a, window b ms (whole seconds). Key: <base>:<seconds / window>.
--@prepare
base = fmt(':%.0f', floor(floor(now / 1000000) / (b / 1000)))
px = fmt('%.0f', b)
since, counted = 1e300, 1e300
--@view compat_window_start
--@save compat_window_start
