-- calendar_window.lua: windows of the calendar; twin of src/limit/calendar_window.c, which tells how.
-- limit a; begin b and end c of the host's window, end d of the next one, in ms: this clock says which one it is.
-- Value: <I5 count> <I6 end ms>, 11 bytes.
--@state s1 s2
--@prepare
local now_ms = floor(now / 1000)
local edge = now_ms < b and b or now_ms < c and c or now_ms < d and d
if not edge then edge = d + (floor((now_ms - d) / (d - c)) + 1) * (d - c) end
--@view
s1, s2, more, keep = 0, 0, 0, 0
if raw then
    if #raw == 11 then
        local count, ends = unp('<I5I6', raw)
        if ends > edge then
            keep = -1
        elseif ends > now_ms then
            s1, s2, more, keep = count, ends, 1, 1
        end
    else
        n_bad = n_bad + 1
    end
end
--@room
room = a - s1
--@store
local count, ends = s1 + units, s2 > 0 and s2 or edge
if more == 1 then -- the end stays, and with it the expiry
    call('SETRANGE', key, '0', pack('<I5', count))
elseif raw then
    call('SET', key, pack('<I5I6', count, ends), 'PXAT', fmt('%.0f', ends))
elseif not call('SET', key, pack('<I5I6', count, ends), 'PXAT', fmt('%.0f', ends), 'NX') then
    s1 = -1
end
--@refund
local begin = s2 <= b and s2 - (c - b) or s2 <= c and b or s2 <= d and c or s2 - (d - c)
if s2 > 0 and floor(made / 1000) >= begin then back = s1 < units and s1 or units end
s1 = s1 - back
if s1 == 0 then s2 = 0 end
