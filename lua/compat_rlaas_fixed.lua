-- compat_rlaas_fixed.lua: like compat_window_start, but the key has the window's number by the server's seconds,
-- and the first hit sets EXPIRE. limit a, window b ms (whole seconds). Key: <base>:<seconds / window>. Another key
-- of the batch may be a compat_rlaas_sliding key of the same name, and may have become a sorted set since this one was read.
--@prepare
base = fmt(':%.0f', floor(floor(now / 1000000) / (b / 1000)))
px = fmt('%.0f', b / 1000)
since, counted = 1e300, 1e300
--@view compat_window_start
--@save
key = K[i] .. base
local after = try('INCRBY', key, fmt('%.0f', charge))
if after == charge then
    call('EXPIRE', key, px)
elseif type(after) == 'table' then
    if not find(after.err, 'WRONGTYPE', 1, true) then return after end
    done = false
end
