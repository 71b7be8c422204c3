-- sliding_log.lua: the time of every unit admitted; twin of src/limit/sliding_log.c, which tells why expired
-- times may stay. limit a, window b us, d 1 = denials count. Value: LIST of us, oldest first, the newest a of them.
--@state s1 s2 own counts
--@prepare
local edge = now - b -- times up to here have expired
local stamp = fmt('%.0f', now)
local px = fmt('%.0f', floor((now + b + 999) / 1000))
--@view
s1, s2, more, keep = 0, 0, 0, 0 -- more: how many have expired; -1: not our list
local len = try('LLEN', key)
if type(len) == 'table' then
    if not find(len.err, 'WRONGTYPE', 1, true) then return len end
    s1 = -1
elseif len > 0 then
    local newest = call('LINDEX', key, '-1')
    s2 = #newest <= 16 and find(newest, '^%d+$') and tonumber(newest)
    if not s2 then
        n_bad = n_bad + 1
        s2, more = 0, -1
    else
        if s2 > now then -- the clock stepped back: times ahead of it become now
            local low, high = -1, len - 1 -- the first of them lies above low and at or below high (places from 0)
            while high - low > 1 do
                local middle = floor((low + high) / 2)
                if (tonumber(call('LINDEX', key, fmt('%d', middle))) or 0) > now then
                    high = middle
                else
                    low = middle
                end
            end
            local ahead, copies = len - high, {}
            for j = 1, ahead < 1000 and ahead or 1000 do copies[j] = stamp end
            call('LTRIM', key, '0', fmt('%d', -1 - ahead))
            for done = 0, ahead - 1, 1000 do
                call('RPUSH', key, unpack(copies, 1, ahead - done < 1000 and ahead - done or 1000))
            end
            call('PEXPIREAT', key, px)
            s2 = now
        end
        if s2 <= edge then
            more = len
        elseif (tonumber(call('LINDEX', key, '0')) or 0) <= edge then
            -- the first that counts lies above low and at or below high
            local low, high = 0, 1
            while high < len - 1 and (tonumber(call('LINDEX', key, fmt('%d', high))) or 0) <= edge do
                low, high = high, high * 2
            end
            if high > len - 1 then high = len - 1 end
            while high - low > 1 do
                local middle = floor((low + high) / 2)
                if (tonumber(call('LINDEX', key, fmt('%d', middle))) or 0) <= edge then
                    low = middle
                else
                    high = middle
                end
            end
            more = high
        end
        s1 = len - more
        if s1 > 0 then keep = 1 end
    end
end
--@room
room = a - s1
--@wait
local nth = counting + cost - a -- 1-based, oldest first, of those that count
local opens = nth >= 1 and nth <= s1 and tonumber(call('LINDEX', key, fmt('%d', more + nth - 1))) or now
wait = opens + b - now
if not (wait >= 1) then wait = 1 end -- a value of somebody else's amid the times
if wait > b then wait = b end
--@store
if units > a then units = a end
if more < 0 then call('DEL', key) end
if units == 1 then
    call('RPUSH', key, stamp)
elseif units > 0 then
    local copies = {}
    for j = 1, units < 1000 and units or 1000 do copies[j] = stamp end
    for done = 0, units - 1, 1000 do
        call('RPUSH', key, unpack(copies, 1, units - done < 1000 and units - done or 1000))
    end
end
if units > 0 and more + s1 + units > a then call('LTRIM', key, fmt('%d', -a), '-1') end
call('PEXPIREAT', key, px)
--@refund
local newer = 0 -- than made: they stay
if s1 > 0 and s2 > made then
    local low, high = more - 1, more + s1 - 1 -- the first of them lies above low and at or below high
    while high - low > 1 do
        local middle = floor((low + high) / 2)
        if (tonumber(call('LINDEX', key, fmt('%d', middle))) or 0) > made then high = middle else low = middle end
    end
    newer = more + s1 - high
end
back = s1 - newer < units and s1 - newer or units
if back > 0 then
    local rest, kept = back, {}
    if newer > 0 then -- those of one charge are taken out where they stand: mostly that is all
        rest = back - call('LREM', key, fmt('%d', -back), call('LINDEX', key, fmt('%d', -1 - newer)))
        if rest > 0 then kept = call('LRANGE', key, fmt('%d', -newer), '-1') end
    end
    if rest > 0 then
        call('LTRIM', key, '0', fmt('%d', -1 - newer - rest))
        for done = 0, newer - 1, 1000 do
            call('RPUSH', key, unpack(kept, done + 1, newer - done < 1000 and newer or done + 1000))
        end
    end
    s1 = s1 - back
    s2 = s1 > 0 and tonumber(call('LINDEX', key, '-1')) or 0
    if not (s2 >= 0 and s2 <= now) then s2 = now end -- a value of somebody else's amid the times
end
