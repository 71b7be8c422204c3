-- concurrency.lua: a lease for every taken slot; C counterpart src/limit/concurrency.c, which explains why ended leases stay.
-- limit a, slot_ttl b ms. Value: ZSET of slot id -> lease end in ms. `slot` is the id that save stores: only ACQUIRE
-- and RESERVE charge such a key.
--@prepare
edge = now_ms + b
second, since = 0, 1e300
--@view
local live = try('ZCOUNT', key, fmt('(%.0f', now_ms), '+inf')
if type(live) == 'table' then
    refused = live
elseif live > 0 then
    used = live
    local last = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    if last > edge then -- the clock stepped back, or slot_ttl was lowered: leases ahead of it are shortened
        local ends = fmt('%.0f', edge)
        for _, id in ipairs(call('ZRANGEBYSCORE', key, '(' .. ends, '+inf')) do call('ZADD', key, 'XX', ends, id) end
        call('PEXPIREAT', key, fmt('%.0f', edge + b))
        last = edge
    end
    --@@ends
end
--@recount
used = call('ZCOUNT', key, fmt('(%.0f', now_ms), '+inf')
if used > 0 then
    local last = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    --@@ends
end
--@ends
local wait = 0
if used >= a then
    local place = fmt('%d', -a)
    wait = -floor(-tonumber(call('ZRANGE', key, place, place, 'WITHSCORES')[2])) - now_ms
end
extra = wait * 67108864 - floor(-last) - now_ms -- rounded up: somebody else's may have fractions
--@save
if charge > 0 then
    call('ZADD', key, fmt('%.0f', edge), slot)
    call('ZREMRANGEBYSCORE', key, '-inf', fmt('%.0f', now_ms))
    call('PEXPIREAT', key, fmt('%.0f', edge + b))
end
