-- ratelimitd.testing: for tests of limits. A fake in place of the daemon, or a real daemon whose clock the test moves.
--
--   local limiter = require("ratelimitd").new()
--   local fake = require("ratelimitd.testing").fake(limiter)
--   fake:deny("login", 3000)

local M = {}

local LIMIT, WINDOW_MS = 100, 60000
local MAYBE_CHARGED = { timeout = true, lost = true, store_unavailable = true }

local Fake = {}
Fake.__index = Fake

-- From now on LIMITER asks the fake. It allows everything until the test changes that, and keeps in `calls` what it was
-- asked: {method, policy, key, cost}. nginx has one fake in each worker.
function M.fake(limiter)
  local fake = setmetatable({ calls = {}, path = limiter.client.path }, Fake)
  fake:allow_all()
  limiter.client = fake
  limiter.verify = function() return {} end -- it has every policy
  return fake
end

function Fake:allow_all() self.denied, self.failure = {}, nil end

-- From now on POLICY is denied, with the time to wait: default 1000; -1 is never.
function Fake:deny(policy, retry_after_ms) self.denied[policy] = retry_after_ms or 1000 end

-- From now on every call fails: "unreachable" (default), "timeout", "lost", "overloaded", "shutting_down",
-- "store_unavailable", "breaker".
function Fake:unavailable(kind)
  kind = kind or "unreachable"
  self.failure = { kind = kind, message = "the fake is " .. kind, maybe_charged = MAYBE_CHARGED[kind] or false }
end

-- From now on every call is refused with this code of the daemon.
function Fake:refuse(code)
  self.failure = { kind = "refused", code = code, message = code .. ": as the test wants it", maybe_charged = false }
end

function Fake:decide_one(method, policy, key, cost)
  local name = type(policy) == "table" and (policy.name or "inline") or policy
  local retry_after_ms = self.denied[name]
  self.calls[#self.calls + 1] = { method, policy, key, cost }
  return {
    allowed = not retry_after_ms, limit = LIMIT, remaining = retry_after_ms and 0 or LIMIT - 1,
    retry_after_ms = retry_after_ms or 0, reset_after_ms = WINDOW_MS, source = "memory", policy_version = 1,
    bound_by = retry_after_ms and name or nil,
    of = name, quota = LIMIT, window_ms = WINDOW_MS, of_reset_ms = WINDOW_MS,
  }
end

-- As Client:check().
function Fake:check(method, members)
  if self.failure then return nil, self.failure end
  if method == "check" then return self:decide_one("check", members[1][1], members[1][2], members[1][3]) end

  local answers, bound = { n = #members }, nil
  for i, member in ipairs(members) do
    answers[i] = self:decide_one("check_all", member[1], member[2], member[3])
    if not answers[i].allowed then bound = bound or answers[i] end
  end
  local decision = {}
  for name, value in pairs(bound or answers[1]) do decision[name] = value end
  decision.members = answers
  return decision
end

function Fake:refund(policy, key, units)
  if self.failure then return nil, self.failure end
  local decision = self:decide_one("refund", policy, key, units)
  decision.allowed, decision.refunded = true, units
  return decision
end

function Fake:policies() return {} end

local Daemon = {}
Daemon.__index = Daemon

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function output_of(command)
  local pipe = assert(io.popen(command))
  local output = pipe:read("*a")
  pipe:close()
  return output
end

-- A real daemon on its memory store, with a clock that only advance() moves; `socket` is its path. All optional: config (the
-- text of a configuration), program ("ratelimitd"), ctl ("ratelimitctl"). It blocks, so ask for it where nginx or HAProxy
-- start (init_by_lua, lua-load) or in a script. Raises what the daemon wrote if it does not start.
function M.daemon(options)
  options = options or {}
  local folder = output_of("mktemp -d"):gsub("\n", "")
  local self = setmetatable({
    folder = folder, socket = folder .. "/socket", ctl = options.ctl or "ratelimitctl", now_us = 1800000000000000,
  }, Daemon)

  local config = assert(io.open(folder .. "/ratelimitd.yaml", "w"))
  config:write(options.config or "")
  config:close()

  local start = ([[cd %s || exit
    %s -c ratelimitd.yaml -s "$PWD/socket" --test-clock >log 2>&1 </dev/null & pid=$!
    tries=0
    until [ -S socket ] || ! kill -0 $pid 2>/dev/null || [ $tries -ge 500 ]; do sleep 0.02; tries=$((tries + 1)); done
    if [ -S socket ]; then echo $pid; else kill $pid 2>/dev/null; cat log; fi]])
  local output = output_of(start:format(quoted(folder), quoted(options.program or "ratelimitd")))
  self.pid = output:match("^(%d+)\n$")
  if not self.pid then
    self:stop()
    error("ratelimitd: the daemon did not start: " .. output, 0)
  end
  self:advance(0)
  return self
end

-- Moves the time of the limits.
function Daemon:advance(seconds)
  self.now_us = self.now_us + math.floor(seconds * 1000000 + 0.5)
  local output = output_of(("%s -s %s test-clock %.0f 2>&1 || echo failed"):format(quoted(self.ctl), quoted(self.socket), self.now_us))
  if output:find("failed\n$") then error("ratelimitd: the clock was not moved: " .. output, 0) end
end

-- Ends it, and removes its folder.
function Daemon:stop()
  local stop = ([[kill %s 2>/dev/null && cd %s && {
    tries=0
    while [ -S socket ] && [ $tries -lt 500 ]; do sleep 0.02; tries=$((tries + 1)); done
  }]]):format(self.pid or "", quoted(self.folder))
  if self.pid then os.execute(stop) end
  self.pid = nil
  os.execute("rm -rf " .. quoted(self.folder))
end

return M
