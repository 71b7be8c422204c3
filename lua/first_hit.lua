-- first_hit.lua: a window that starts with the first unit charged; twin of src/limit/first_hit.c.
-- limit a, window b ms, d 1 = denials count. Value: <I4 count> <I6 end ms>, 10 bytes.
--@state s1 s2 counts
--@prepare
local now_ms = floor(now / 1000)
local edge = now_ms + b
--@view
s1, s2, more, keep = 0, 0, 0, 0
if raw then
    if #raw == 10 then
        local count, ends = unp('<I4I6', raw)
        if ends > edge then
            s1, s2, keep = count, edge, -1
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
if count > 4294967295 then count = 4294967295 end
if more == 1 then -- the end stays, and with it the expiry
    call('SETRANGE', key, '0', pack('<I4', count))
elseif raw then
    call('SET', key, pack('<I4I6', count, ends), 'PXAT', fmt('%.0f', ends))
elseif not call('SET', key, pack('<I4I6', count, ends), 'PXAT', fmt('%.0f', ends), 'NX') then
    s1 = -1
end
--@refund
if s2 > 0 and floor(made / 1000) >= s2 - b then back = s1 < units and s1 or units end
s1 = s1 - back
if s1 == 0 then s2 = 0 end
