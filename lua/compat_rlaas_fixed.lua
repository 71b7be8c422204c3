-- compat_rlaas_fixed.lua: as compat_window_start, but the key names the window's number by the server's seconds,
-- and EXPIRE comes with the first hit. limit a, window b ms (whole seconds). Key: <base>:<seconds / window>.
--@prepare
base = fmt(':%.0f', floor(floor(now / 1000000) / (b / 1000)))
px = fmt('%.0f', b / 1000)
since, counted = 1e300, 1e300
--@view compat_window_start
--@save
key = K[i] .. base
if call('INCRBY', key, fmt('%.0f', charge)) == charge then call('EXPIRE', key, px) end
