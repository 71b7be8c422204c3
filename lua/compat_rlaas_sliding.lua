-- compat_rlaas_sliding.lua: a ZSET of milliseconds, what is denied is not recorded; twin in src/limit/compat.c.
-- limit a, window b ms. Key: the base key. What has left the window goes first, and a denial sets the TTL of
-- two windows too, as the original's does.
--@state s1 s2 own
--@prepare
local now_ms = floor(now / 1000)
local stamp = fmt('%.0f', now_ms)
local edge = fmt('%.0f', now_ms - b)
local after = '(' .. edge
local ttl = fmt('%.0f', 2 * b)
--@view
s1, s2, more, keep = 0, 0, 0, 0
local live = try('ZCOUNT', key, after, '+inf')
if type(live) == 'table' then
    if not find(live.err, 'WRONGTYPE', 1, true) then return live end
    s1 = -1
elseif live > 0 then
    s1, keep = live, 1
    local newest = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    s2 = 1000 * (newest < now_ms + b and floor(newest) or now_ms + b)
end
if s1 >= 0 and k > 0 then keep = -1 end
--@room
room = a - s1
--@wait
local nth, now_ms = counting + cost - a, floor(now / 1000) -- 1-based, oldest first, of those that count
local opens = now_ms
if nth >= 1 and nth <= s1 then
    local place = fmt('%d', call('ZCARD', key) - s1 + nth - 1)
    opens = floor(tonumber(call('ZRANGE', key, place, place, 'WITHSCORES')[2]))
end
wait = 1000 * (opens + b - now_ms)
if wait < 1 then wait = 1 end
if wait > 1000 * b then wait = 1000 * b end
--@store
call('ZREMRANGEBYSCORE', key, '0', edge)
for _ = 1, units do
    n_members = n_members + 1
    call('ZADD', key, stamp, fmt('%.0f-%.0f-%d', now, nonce, n_members))
end
call('PEXPIRE', key, ttl)
