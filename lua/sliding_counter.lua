-- sliding_counter.lua: two counts instead of a log; C counterpart src/limit/sliding_counter.c, which explains it.
-- limit a, window b ms, c the largest count whose product with b is exact. Value: <I6 window> <I4 previous count>
-- <I4 count>, 14 bytes. The window shows which expiry was set: as long as it is the present window, one
-- SETRANGE of the count is enough.
--@prepare
edge = floor(now_ms / b)
base = (edge + 1) * b - now_ms
px = fmt('%.0f', (edge + 2) * b)
since = edge * b * 1000
second = 0
--@view
if raw then
    if #raw == 14 then
        local at, previous, present = unp('<I6I4I4', raw)
        if at >= edge then
            used, extra, more, stale = present, previous, at == edge and 1 or 0, at > edge
        elseif at == edge - 1 then
            extra = present
        end
        if used > c then used, more = c, 0 end
        if extra > c then extra, more = c, 0 end
        capacity = a + floor(-extra * base / b) -- the share is rounded up
    else
        n_bad = n_bad + 1
    end
end
--@save
if more == 1 then
    call('SETRANGE', key, '10', pack('<I4', used))
elseif raw then
    call('SET', key, pack('<I6I4I4', edge, extra, used), 'PXAT', px)
else
    done = call('SET', key, pack('<I6I4I4', edge, extra, used), 'PXAT', px, 'NX')
end
