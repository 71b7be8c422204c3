-- benchmark.lua: the measurements of ./bench, in a request to nginx. The answer has a line for each block of checks, the row and
-- the microseconds of one check.

local msgpack = require "ratelimitd.msgpack"
local nginx = require "ratelimitd.nginx"

local ROUNDS, ROUND_S, BLOCK = 5, 0.2, 100

local function row(limiter, policy, cost, allowed)
  return function()
    local decision = assert(limiter:decide("check", { msgpack.array { policy, "k", cost } }, 10))
    assert(decision.allowed == allowed, "another decision")
  end
end

local function now_s()
  ngx.update_time()
  return ngx.now()
end

-- ngx.now() has whole milliseconds: so many blocks as fill a round are timed together.
local function measure(name, ask)
  local n, begun, passed = 0, now_s(), 0
  while passed < ROUND_S do
    for _ = 1, BLOCK do ask() end
    n, passed = n + BLOCK, now_s() - begun
  end
  ngx.say(("%s\t%.4f"):format(name, passed * 1e6 / n))
end

return function(socket)
  local limiter = nginx.new { socket = socket, timeout = 10000, remember_denials = 3600000 }
  local check, repeated = row(limiter, "bench", 1, true), row(limiter, "full", 2, false)
  repeated()
  for _ = 1, ROUNDS do
    measure("limiter", check)
    measure("limiter, a remembered denial", repeated)
  end
end
