-- A fixed window aligned to the epoch for one key, as a program that talks to Redis itself would have it: the bench's
-- baseline. ARGV: limit, window in milliseconds. Answers what is left; the window's remaining time, negative, when denied.
local call = redis.call
local used = tonumber(call('GET', KEYS[1]) or 0)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if used >= tonumber(ARGV[1]) then return -call('PTTL', KEYS[1]) end
if used == 0 then
  call('SET', KEYS[1], '1', 'PXAT', string.format('%.0f', now - now % ARGV[2] + ARGV[2]))
else
  call('INCR', KEYS[1])
end
return ARGV[1] - used - 1
