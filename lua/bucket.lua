-- bucket.lua: token bucket = GCRA in exact integers, and with a wait the leaky bucket; C counterpart src/limit/bucket.c,
-- which explains it. a tokens per b us; c the level up to which a check is admitted, d the highest that any may leave.
-- Value: <I7 tat us> <I7 rem> <I6 expiry ms>, 20 bytes. The expiry is in the value too: as long as it is far away, one
-- SETRANGE is enough.
--@prepare
step = b
base = (d - d % a) / a -- us until the highest level is drained
edge = floor((now + 2 * base) / 1000) + 1000
px = fmt('%.0f', edge)
--@view
capacity = c
if raw then
    if #raw == 20 then
        local tat, rem
        tat, rem, more = unp('<I7I7I6', raw)
        local ahead = tat - now
        if ahead >= 0 then
            if rem >= a then rem = a - 1 end
            used = ahead > base and d + 1 or ahead * a + rem
            if used > d then used, stale = d, true end
        end
    else
        n_bad = n_bad + 1
    end
end
--@save
local rem = used % a
local tat = now + (used - rem) / a
if more * 1000 > tat and more <= edge then
    call('SETRANGE', key, '0', pack('<I7I7', tat, rem))
elseif raw then
    call('SET', key, pack('<I7I7I6', tat, rem, edge), 'PXAT', px)
else
    done = call('SET', key, pack('<I7I7I6', tat, rem, edge), 'PXAT', px, 'NX')
end
