-- ratelimitd.client: one call to the daemon, its timeout, the breaker and the back-off.
--
-- A platform (ratelimitd.nginx, ratelimitd.haproxy) brings sockets and a clock:
--
--   now()                      seconds, with fractions
--   connect(path, timeout_s)   a connection, or nil and a message
--
-- A connection has `is_new`, `calls` (that it has carried before this one), send(bytes, timeout_s) and
-- receive(n, timeout_s), both of which return nil and a message ("timeout" when time is up), keep() for the next call and
-- close(). One call is under way on a connection at a time.

local msgpack = require "ratelimitd.msgpack"

local M = {}

local BREAKER_TIMEOUTS = 3
local BREAKER_SECONDS = 1
local LATE_LOOK_SECONDS, LATE_SECONDS = 0.002, 0.05
local BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS = 0.01, 0.25

-- Codes that mean "no answer"; every other code is a mistake in the program or the configuration.
local UNAVAILABLE = { OVERLOADED = "overloaded", SHUTTING_DOWN = "shutting_down", STORE_UNAVAILABLE = "store_unavailable" }

-- The failures that the daemon has answered, and after which the connection goes on.
local IS_ANSWER = { refused = true, overloaded = true, store_unavailable = true }

local Client = {}
Client.__index = Client

-- PATH of the daemon's socket; TIMEOUT_S for a whole call, connecting included.
function M.new(platform, path, timeout_s)
  return setmetatable({
    platform = platform, path = path, timeout_s = timeout_s,
    timeouts = 0, closed_until = 0, -- the breaker: timeouts in a row, and until when calls fail at once
    backoff_s = 0, retry_at = 0,
  }, Client)
end

local function unavailable(kind, message, maybe_charged)
  return { kind = kind, message = message, maybe_charged = maybe_charged or false }
end

-- A failure, if the daemon is not to be asked now.
function Client:barred(now)
  if now < self.closed_until then
    return unavailable("breaker", ("no answer to %d calls in a row: not asked for a second"):format(BREAKER_TIMEOUTS))
  end
  if now < self.retry_at then return unavailable("unreachable", "the daemon was not reached a moment ago") end
  if self.timeouts >= BREAKER_TIMEOUTS then self.closed_until = now + BREAKER_SECONDS end -- this call is the probe
  return nil
end

function Client:not_reached(message)
  self.backoff_s = math.min(BACKOFF_MAX_SECONDS, math.max(BACKOFF_FIRST_SECONDS, 2 * self.backoff_s))
  self.retry_at = self.platform.now() + self.backoff_s * (0.5 + math.random() / 2)
  return unavailable("unreachable", ("cannot connect to %s: %s"):format(self.path, message))
end

-- Three in a row, and calls fail at once for a second.
function Client:timed_out()
  self.timeouts = self.timeouts + 1
  if self.timeouts >= BREAKER_TIMEOUTS then self.closed_until = self.platform.now() + BREAKER_SECONDS end
end

function Client:reached()
  self.timeouts, self.closed_until = 0, 0
  self.backoff_s, self.retry_at = 0, 0
end

-- The error text of a response as a failure.
local function failure_of(text)
  if type(text) ~= "string" then return unavailable("protocol", "an error that is not text", true) end
  local code = text:match("^([%u_]+): ") or text:match("^[%u_]+$") or "INTERNAL"
  if not UNAVAILABLE[code] then return { kind = "refused", code = code, message = text, maybe_charged = false } end
  local failure = unavailable(UNAVAILABLE[code], text, code == "STORE_UNAVAILABLE")
  failure.code = code
  return failure
end

-- The result that answers MSGID, or nil and a failure. Raises what read() raises.
local function answer_to(msgid, read)
  while true do
    local message = msgpack.unpack(read)
    if type(message) ~= "table" or message.n ~= 4 or message[1] ~= 1 then
      return nil, unavailable("protocol", "an answer that is not a response", true)
    end
    if message[2] == nil then
      local failure = unavailable("lost", "the daemon closed the connection: " .. tostring(message[3]), true)
      failure.code = type(message[3]) == "string" and message[3]:match("^([%u_]+): ") or nil
      return nil, failure
    end
    if type(message[2]) ~= "number" then return nil, unavailable("protocol", "an answer without a msgid", true) end
    if message[2] == msgid then
      if message[3] ~= nil and message[4] ~= nil then return nil, unavailable("protocol", "an error and a result", true) end
      if message[3] ~= nil then return nil, failure_of(message[3]) end
      return message[4]
    end
  end
end

-- The result of METHOD, or nil and a failure: {kind, message, maybe_charged, code}. TIMEOUT_S replaces the client's. The kind
-- is "refused" for a mistake that the daemon has found (`code` is its code), else why there is no answer: "unreachable",
-- "timeout", "lost", "protocol", "overloaded", "shutting_down", "store_unavailable" or "breaker".
function Client:call(method, params, timeout_s)
  timeout_s = timeout_s or self.timeout_s
  local platform = self.platform
  local now = platform.now()
  local failure = self:barred(now)
  if failure then return nil, failure end

  local deadline = now + timeout_s
  local connection, message = platform.connect(self.path, timeout_s)
  if not connection then
    if message == "timeout" then self:timed_out() end
    return nil, self:not_reached(message)
  end

  local msgid = connection.calls + 1
  local bytes = msgpack.pack(msgpack.array { 0, msgid, method, msgpack.array(params) })
  if connection.is_new then
    bytes = msgpack.pack(msgpack.array { 0, 0, "hello", msgpack.array { { describe = true } } }) .. bytes
  end

  local reason, late_until
  local function read(n)
    local got = ""
    while true do
      local left_s = math.max(0, deadline - platform.now())
      if late_until then left_s = math.min(LATE_LOOK_SECONDS, late_until - platform.now()) end
      local data, failed, part
      if left_s >= 0 then data, failed, part = connection.receive(n - #got, left_s) else failed = "timeout" end
      if data then return got .. data end
      reason, got = failed, got .. (part or "")
      if reason ~= "timeout" or late_until then break end
      late_until = platform.now() + LATE_SECONDS -- a worker that was busy looks once more: the answer may lie there
    end
    local kind = reason == "timeout" and "timeout" or "lost"
    error(unavailable(kind, kind == "timeout" and "no answer in time" or "connection lost: " .. reason, true), 0)
  end

  local is_sent, is_read, result
  is_sent, reason = connection.send(bytes, timeout_s)
  if is_sent then
    is_read, result, failure = pcall(answer_to, msgid, read)
    if not is_read then
      result, failure = nil, type(result) == "table" and result or unavailable("protocol", tostring(result), true)
    end
  else
    failure = unavailable(reason == "timeout" and "timeout" or "lost", "sending failed: " .. reason, true)
  end

  if failure and failure.kind == "timeout" then self:timed_out() else self:reached() end
  if not failure or IS_ANSWER[failure.kind] then connection.keep() else connection.close() end
  return result, failure
end

-- Is this a decision as PROTOCOL.md describes it? What is not must not become a yes.
function M.is_decision(value)
  if type(value) ~= "table" or type(value.allowed) ~= "boolean" or type(value.source) ~= "string" then return false end
  for _, name in ipairs { "remaining", "limit", "retry_after_ms", "reset_after_ms" } do
    if type(value[name]) ~= "number" then return false end
  end
  if value.of == nil then return true end
  return type(value.of) == "string" and type(value.quota) == "number" and type(value.window_ms) == "number"
    and type(value.of_reset_ms) == "number"
end

-- Is this the answer to a check, or to a check_all of N members?
function M.is_answer(value, n)
  if not M.is_decision(value) then return false end
  if n == 1 then return true end
  if type(value.members) ~= "table" or value.members.n ~= n then return false end
  for i = 1, n do
    if not M.is_decision(value.members[i]) then return false end
  end
  return true
end

return M
