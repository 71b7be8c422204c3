-- compat_rlaas_sliding.lua: a ZSET of milliseconds; does not record denied checks; C counterpart in
-- src/limit/compat.c. limit a, window b ms. Key: the base key. Entries that have left the window are removed.
-- A denial also sets the TTL of two windows, like the original. Another key of the batch may be a string of the same name,
-- written since this one was read.
--@prepare
base = fmt('%.0f', now_ms)
edge = fmt('%.0f', now_ms - b)
px = fmt('%.0f', 2 * b)
second, start, renews, window = 0, now_ms * 1000, true, b * 1000
--@view
local live = try('ZCOUNT', key, '(' .. edge, '+inf')
if type(live) == 'table' then
    refused = live
elseif live > 0 then
    used = live
    local newest = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])
    extra = 1000 * (newest < now_ms + b and floor(newest) or now_ms + b)
end
stale = not refused and count > 0
--@wait
wait = 1000 * (floor(tonumber(call('ZRANGE', key, place, place, 'WITHSCORES')[2])) - now_ms) + window
--@save
local answer
for _ = 1, charge do
    n_added = n_added + 1
    answer = try('ZADD', key, base, fmt('%.0f-%.0f-%d', now, nonce, n_added))
    if answer ~= 1 then break end
end
if type(answer) ~= 'table' then answer = try('ZREMRANGEBYSCORE', key, '0', edge) end
if type(answer) == 'table' then
    if not find(answer.err, 'WRONGTYPE', 1, true) then error(answer) end
    done = false
elseif used > 0 then -- else nothing is left
    call('PEXPIRE', key, px)
end
