-- sliding_log.lua: the time of every admitted unit; C counterpart src/limit/sliding_log.c, which explains why expired
-- times may stay. limit a, window b us, d 1 = denials count. Value: LIST of us, oldest first, the newest a + d of them.
--@prepare
edge = now - b -- times up to here have expired
base = fmt('%.0f', now)
px = fmt('%.0f', floor((now + b + 999) / 1000))
second, start, renews, window = 0, now, true, b
if d == 1 then counted = 1e300 end
--@view
local len = try('LLEN', key) -- more: how many have expired; -1: not our list
if type(len) == 'table' then
    refused = len
elseif len > 0 then
    local newest = call('LINDEX', key, '-1')
    extra = #newest <= 16 and find(newest, '^%d+$') and tonumber(newest)
    if not extra then
        n_bad = n_bad + 1
        extra, more = 0, -1
    else
        if extra > now then extra, stale = now, true end -- the clock stepped back: times ahead of it become now
        if extra <= edge then
            more = len
        elseif (tonumber(call('LINDEX', key, '0')) or 0) <= edge then
            -- the first time that counts is above low and at or below high
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
        used = len - more
    end
end
--@save
if stale then
    local len = more + used - charge
    local low, high = -1, len -- the first that is ahead, if any is left, lies above low and at or below high
    while high - low > 1 do
        local middle = floor((low + high) / 2)
        if (tonumber(call('LINDEX', key, fmt('%d', middle))) or 0) > now then high = middle else low = middle end
    end
    local ahead, copies = len - high, {}
    for j = 1, ahead < 1000 and ahead or 1000 do copies[j] = base end
    if ahead > 0 and high > 0 then call('LTRIM', key, '0', fmt('%d', -1 - ahead)) end
    for pushed = 0, ahead - 1, 1000 do
        call('RPUSH', key, unpack(copies, 1, ahead - pushed < 1000 and ahead - pushed or 1000))
    end
    if ahead > 0 and high == 0 then call('LTRIM', key, fmt('%d', ahead), '-1') end
end
if charge > a + d then charge = a + d end
if charge == 1 then
    call('RPUSH', key, base)
elseif charge > 0 then
    local copies = {}
    for j = 1, charge < 1000 and charge or 1000 do copies[j] = base end
    for pushed = 0, charge - 1, 1000 do
        call('RPUSH', key, unpack(copies, 1, charge - pushed < 1000 and charge - pushed or 1000))
    end
end
if charge > 0 and more < 0 then
    call('LTRIM', key, fmt('%d', -charge), '-1')
elseif charge > 0 and more + used > a + d then
    call('LTRIM', key, fmt('%d', -a - d), '-1')
end
call('PEXPIREAT', key, px)
--@wait
wait = (tonumber(call('LINDEX', key, place)) or now) + window - now
--@refund
local newer = 0 -- than the charge: they stay
if used > 0 and extra > charged_at then
    local low, high = more - 1, more + used - 1 -- the first of them lies above low and at or below high
    while high - low > 1 do
        local middle = floor((low + high) / 2)
        if (tonumber(call('LINDEX', key, fmt('%d', middle))) or 0) > charged_at then high = middle else low = middle end
    end
    newer = more + used - high
end
gives = used - newer < units and used - newer or units
if gives > 0 then
    local rest, kept = gives, {}
    if newer > 0 then -- those of one charge are taken out where they stand: mostly that is all
        rest = gives - call('LREM', key, fmt('%d', -gives), call('LINDEX', key, fmt('%d', -1 - newer)))
        if rest > 0 then kept = call('LRANGE', key, fmt('%d', -newer), '-1') end
    end
    if rest > 0 then
        local older = more + used - gives - newer -- they stay, too
        if older > 0 then
            call('LTRIM', key, '0', fmt('%d', older - 1))
        elseif newer == 0 then -- a time that has expired, until the end of the batch
            call('RPUSH', key, '0')
            call('LTRIM', key, '-1', '-1')
            more, late[key] = 1, {'LREM', key, '1', '0'}
        end
        for pushed = 0, newer - 1, 1000 do
            call('RPUSH', key, unpack(kept, pushed + 1, newer - pushed < 1000 and newer or pushed + 1000))
        end
        if older == 0 and newer > 0 then call('LTRIM', key, fmt('%d', -newer), '-1') end
    end
    extra = tonumber(call('LINDEX', key, '-1')) or 0
    if not (extra >= 0 and extra <= now) then extra = now end -- a value of somebody else's amid the times
end
