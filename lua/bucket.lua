-- bucket.lua: token bucket = GCRA in exact integers; twin of src/limit/bucket.c, which tells how.
-- a tokens per b us; c the level up to which a check is admitted, d the highest that any may leave. Value: <I7 tat us> <I7 rem> <I6 expiry ms>, 20 bytes; the expiry stands in
-- the value too, so that one SETRANGE does while it is far enough.
--@state s1
--@prepare
local life = (d - d % a) / a
local horizon = floor((now + 2 * life) / 1000) + 1000
local px = fmt('%.0f', horizon)
--@view
s1, more, keep = 0, 0, 0
if raw then
    if #raw == 20 then
        local tat, rem
        tat, rem, more = unp('<I7I7I6', raw)
        local ahead = tat - now
        if ahead >= 0 then
            if rem >= a then rem = a - 1 end
            if ahead > life then s1 = d + 1 else s1 = ahead * a + rem end
            if s1 > d then s1, keep = d, -1 elseif s1 > 0 then keep = 1 end
        end
    else
        n_bad = n_bad + 1
    end
end
--@room
room = floor((c - s1) / b)
--@store
local level = s1 + units * b
local rem = level % a
local tat = now + (level - rem) / a
if more * 1000 > tat and more <= horizon then
    call('SETRANGE', key, '0', pack('<I7I7', tat, rem))
elseif raw then
    call('SET', key, pack('<I7I7I6', tat, rem, horizon), 'PXAT', px)
elseif not call('SET', key, pack('<I7I7I6', tat, rem, horizon), 'PXAT', px, 'NX') then
    s1 = -1
end
--@refund
back = -floor(-s1 / b) -- rounded up: a unit that is partly back already counts as one
if units < back then back = units end
s1 = s1 > back * b and s1 - back * b or 0
