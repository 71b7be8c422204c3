-- concurrency.lua: a lease for every slot taken; twin of src/limit/concurrency.c, which tells why ended leases stay.
-- limit a, slot_ttl b ms. Value: ZSET of slot id -> lease end in ms. `slot` is the id that store takes: only a step of
-- acquire charges such a key.
--@state s1 s2 own
--@prepare
local now_ms = floor(now / 1000)
local edge = now_ms + b
--@view
s1, s2, more, keep = 0, 0, 0, 0
local live = try('ZCOUNT', key, fmt('(%.0f', now_ms), '+inf')
if type(live) == 'table' then
    if not find(live.err, 'WRONGTYPE', 1, true) then return live end
    s1 = -1
elseif live > 0 then
    s1, keep = live, 1
    local last = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    if last > edge then -- the clock stepped back, or slot_ttl was lowered: leases ahead of it are shortened
        local ends = fmt('%.0f', edge)
        for _, id in ipairs(call('ZRANGEBYSCORE', key, '(' .. ends, '+inf')) do call('ZADD', key, 'XX', ends, id) end
        call('PEXPIREAT', key, fmt('%.0f', edge + b))
        last = edge
    end
    local wait = 0
    if live >= a then
        local place = fmt('%d', -a)
        wait = floor(tonumber(call('ZRANGE', key, place, place, 'WITHSCORES')[2])) - now_ms
    end
    s2 = wait * 67108864 + floor(last) - now_ms
end
--@room
room = a - s1
--@store
if units > 0 then
    call('ZREMRANGEBYSCORE', key, '-inf', fmt('%.0f', now_ms))
    call('ZADD', key, fmt('%.0f', edge), slot)
    call('PEXPIREAT', key, fmt('%.0f', edge + b))
end
