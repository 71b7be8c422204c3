-- compat_endpoint_log.lua: a ZSET of milliseconds, every request recorded, the denied ones too; twin in
-- src/limit/compat.c. limit a, window b ms (whole seconds). Members are unique, so that two requests in one
-- millisecond count as two.
--@state s1 s2 own counts
--@prepare
local now_ms = floor(now / 1000)
local stamp = fmt('%.0f', now_ms)
local edge = fmt('%.0f', now_ms - b)
local after = '(' .. edge
local ttl = fmt('%.0f', b / 1000)
--@view compat_rlaas_sliding
--@room compat_rlaas_sliding
--@wait compat_rlaas_sliding
--@store
for _ = 1, units do
    n_members = n_members + 1
    call('ZADD', key, stamp, fmt('%.0f-%.0f-%d', now, nonce, n_members))
end
call('ZREMRANGEBYSCORE', key, '0', edge)
call('EXPIRE', key, ttl)
