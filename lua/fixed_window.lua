-- fixed_window.lua: windows aligned to the epoch; C counterpart src/limit/fixed_window.c.
-- limit a, window b ms, c 0 or b - phase, d 1 = denials count. Value: the decimal integer
-- (window number mod 2^16) * 2^36 + count, so that one INCRBY counts and returns the window: an expiry alone
-- cannot end a window to the millisecond.
--@prepare
edge = floor((now_ms + c) / b)
base = edge % 65536 * 68719476736
px = fmt('%.0f', (edge + 1) * b - c + 5000)
since = (edge * b - c) * 1000
if d == 1 then counted = 34359738368 end
--@view
if raw then
    local value = #raw <= 16 and (find(raw, '^[1-9]%d*$') or raw == '0') and tonumber(raw) -- as INCRBY takes it
    if not value or value >= 4503599627370496 then
        n_bad = n_bad + 1
    elseif value >= base and value < base + 68719476736 then
        used, more = value - base, 1
    elseif (floor(value / 68719476736) - edge) % 65536 < 32768 then
        stale = true -- a later window: the clock stepped back
    end
end
--@save
if used >= 34359738368 then used, more = 34359738368, 0 end
if more == 1 and charge ~= 0 then -- the window stays, and with it the expiry
    call('INCRBY', key, charge == 1 and '1' or fmt('%.0f', charge))
elseif raw then
    call('SET', key, fmt('%.0f', base + used), 'PXAT', px)
else
    done = call('SET', key, fmt('%.0f', base + used), 'PXAT', px, 'NX')
end
--@check
local all, new = count * cost, nil
if not counted and all > a then all = floor(a / cost) * cost end
local add = all == 1 and '1' or fmt('%.0f', all)
for i = first, first + n - 1 do
    local value, used = try('INCRBY', K[i], add), 0
    if type(value) == 'number' then
        used = value - base - all
        if used <= 0 or used >= 68719476736 then used = 0 end -- no key, or another window's
    elseif find(value.err, 'WRONGTYPE', 1, true) then
        used = -1
    elseif find(value.err, 'not an integer', 1, true) or find(value.err, 'overflow', 1, true) then
        n_bad = n_bad + 1
    else
        used = why and why(value)
        if not used then return value end
    end
    if used == 0 then
        new = new or fmt('%.0f', base + all)
        call('SET', K[i], new, 'PXAT', px)
    elseif used > 0 and counted then
        if used + all > counted then call('SET', K[i], fmt('%.0f', base + counted), 'PXAT', px) end
    elseif used >= 0 and used + all > a then
        local fit = used < a and floor((a - used) / cost) * cost or 0
        call('DECRBY', K[i], fit == 0 and add or fmt('%.0f', all - fit))
    end
    n_reply = n_reply + 1
    reply[n_reply] = used
end
