-- calendar_window.lua: windows of the calendar; C counterpart src/limit/calendar_window.c, which explains it.
-- limit a; begin b and end c of the host's window, end d of the next one, in ms: the clock of Redis decides between them.
-- Value: <I5 count> <I6 end ms>, 11 bytes.
--@prepare
edge = now_ms < b and b or now_ms < c and c or now_ms < d and d
if not edge then edge = d + (floor((now_ms - d) / (d - c)) + 1) * (d - c) end
second, start = 0, edge
fresh = (edge <= b and edge - (c - b) or edge <= c and b or edge <= d and c or edge - (d - c)) * 1000
--@view
since = fresh
if raw then
    if #raw == 11 then
        local units, ends = unp('<I5I6', raw)
        if ends > edge then
            stale = true
        elseif ends > now_ms then
            used, extra, more = units, ends, 1
            if ends < edge then -- another zone's, or a shorter window's
                since = (ends <= b and ends - (c - b) or ends <= c and b or ends <= d and c or ends - (d - c)) * 1000
            end
        end
    else
        n_bad = n_bad + 1
    end
end
--@save
local ends = extra > 0 and extra or edge
if more == 1 then -- the end stays, and with it the expiry
    call('SETRANGE', key, '0', pack('<I5', used))
elseif raw then
    call('SET', key, pack('<I5I6', used, ends), 'PXAT', fmt('%.0f', ends))
else
    done = call('SET', key, pack('<I5I6', used, ends), 'PXAT', fmt('%.0f', ends), 'NX')
end
