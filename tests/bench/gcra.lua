-- A lean token bucket (GCRA) for one key, as a program that talks to Redis itself would have it: the bench's baseline.
-- ARGV: microseconds per unit, burst in microseconds. Answers what is left, in microseconds; negative when denied.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
local after = tat + ARGV[1]
local left = ARGV[2] - (after - now)
if left < 0 then return left end
call('SET', KEYS[1], string.format('%.0f', after), 'PX', string.format('%.0f', (after - now) / 1000 + 1))
return left
