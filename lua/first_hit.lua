-- first_hit.lua: a window that starts with the first charged unit; C counterpart src/limit/first_hit.c.
-- limit a, window b ms, d 1 = denials count. Value: <I4 count> <I6 end ms>, 10 bytes.
--@prepare
edge = now_ms + b
second, start, fresh = 0, edge, now_ms * 1000
if d == 1 then counted = 4294967295 end
--@view
since = fresh
if raw then
    if #raw == 10 then
        local units, ends = unp('<I4I6', raw)
        if ends > edge then
            used, extra, stale = units, edge, true
        elseif ends > now_ms then
            used, extra, more, since = units, ends, 1, (ends - b) * 1000
        end
    else
        n_bad = n_bad + 1
    end
end
--@save
local ends = extra > 0 and extra or edge
if used > 4294967295 then used = 4294967295 end
if more == 1 then -- the end stays, and with it the expiry
    call('SETRANGE', key, '0', pack('<I4', used))
elseif raw then
    call('SET', key, pack('<I4I6', used, ends), 'PXAT', fmt('%.0f', ends))
else
    done = call('SET', key, pack('<I4I6', used, ends), 'PXAT', fmt('%.0f', ends), 'NX')
end
