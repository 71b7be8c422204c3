-- sliding_counter.lua: two counts in place of a log; twin of src/limit/sliding_counter.c, which tells how.
-- limit a, window b ms, c the largest count whose product with b is exact. Value: <I6 window> <I4 previous count>
-- <I4 count>, 14 bytes. The window says which expiry was set, so that one SETRANGE of the count does while it is the
-- present one.
--@state s1 s2
--@prepare
local now_ms = floor(now / 1000)
local window = floor(now_ms / b)
local left = (window + 1) * b - now_ms
local px = fmt('%.0f', (window + 2) * b)
--@view
s1, s2, more, keep = 0, 0, 0, 0
if raw then
    if #raw == 14 then
        local at, previous, count = unp('<I6I4I4', raw)
        if at >= window then
            s1, s2, more = count, previous, at == window and 1 or 0
        elseif at == window - 1 then
            s2 = count
        end
        if at > window then keep = -1 elseif s1 > 0 or s2 > 0 then keep = 1 end
        if s1 > c then s1, more = c, 0 end
        if s2 > c then s2, more = c, 0 end
    else
        n_bad = n_bad + 1
    end
end
--@room
room = a - s1 + floor(-s2 * left / b) -- the share is rounded up
--@store
local count = s1 + units
if more == 1 then
    call('SETRANGE', key, '10', pack('<I4', count))
elseif raw then
    call('SET', key, pack('<I6I4I4', window, s2, count), 'PXAT', px)
elseif not call('SET', key, pack('<I6I4I4', window, s2, count), 'PXAT', px, 'NX') then
    s1 = -1
end
--@refund
if floor(floor(made / 1000) / b) >= window then back = s1 < units and s1 or units end
s1 = s1 - back
