-- fixed_window.lua: windows aligned to the epoch; twin of src/limit/fixed_window.c.
-- limit a, window b ms, c 0 or b - phase, d 1 = denials count. Value: the decimal integer
-- (window number mod 2^16) * 2^36 + count, so that one INCRBY both counts and tells the window: expiry alone
-- cannot end a window to the millisecond.
--@state s1 counts
--@prepare
local now_ms = floor(now / 1000)
local number = floor((now_ms + c) / b)
local base = number % 65536 * 68719476736
local px = fmt('%.0f', (number + 1) * b - c + 5000)
--@view
s1, more, keep = 0, 0, 0
if raw then
    local value = #raw <= 16 and find(raw, '^%d+$') and tonumber(raw)
    if not value or value >= 4503599627370496 then
        n_bad = n_bad + 1
    elseif value >= base and value < base + 68719476736 then
        s1, keep = value - base, 1
    elseif (floor(value / 68719476736) - number) % 65536 < 32768 then
        keep = -1 -- a later window: the clock stepped back
    end
end
--@room
room = a - s1
--@store
local count = s1 + units
if count > 34359738368 then count = 34359738368 end
if raw then
    call('SET', key, fmt('%.0f', base + count), 'PXAT', px)
elseif not call('SET', key, fmt('%.0f', base + count), 'PXAT', px, 'NX') then
    s1 = -1
end
--@refund
if floor((floor(made / 1000) + c) / b) >= number then back = s1 < units and s1 or units end
s1 = s1 - back
--@plain
local s1, more, keep = 0, 0, 0
if k == 0 then
    local raw = try('GET', key)
    if type(raw) == 'table' then
        if not find(raw.err, 'WRONGTYPE', 1, true) then return raw end
        s1 = -1
    else
        --@@view
        if keep < 0 then call('SET', key, fmt('%.0f', base), 'PXAT', px) end
    end
else
    if d == 0 and k * cost > a then k = floor(a / cost) end
    local add = k * cost
    local value = try('INCRBY', key, add == 1 and '1' or fmt('%.0f', add))
    local seen = 0
    if type(value) == 'number' then
        seen = value - base - add
    elseif find(value.err, 'WRONGTYPE', 1, true) then
        s1 = -1
    elseif find(value.err, 'not an integer', 1, true) or find(value.err, 'overflow', 1, true) then
        n_bad = n_bad + 1
    else
        return value
    end
    if seen > 0 and seen < 68719476736 then
        s1 = seen
        if d == 1 then
            if seen + add > 34359738368 then call('SET', key, fmt('%.0f', base + 34359738368), 'PXAT', px) end
        else
            local fit = seen < a and floor((a - seen) / cost) or 0
            if fit < k then call('DECRBY', key, fmt('%.0f', (k - fit) * cost)) end
        end
    elseif s1 == 0 then -- no key, or another window's
        call('SET', key, fmt('%.0f', base + add), 'PXAT', px)
    end
end
