-- ratelimitd.client: one call to the daemon, its timeout, the breaker and the back-off.
--
-- A platform (ratelimitd.nginx, ratelimitd.haproxy) brings sockets and a clock:
--
--   now()                            seconds, with fractions
--   connect(path, timeout_s, pool)   a connection of the pool of that name, or nil and a message
--
-- All connections of a pool lead to daemons of equal features: one whose hello is answered with others ends the pool.
--
-- A connection has `is_new`, `calls` (that it has carried before this one), send(bytes, timeout_s) and
-- receive(n, timeout_s), both of which return nil and a message ("timeout" when time is up), keep() for the next call and
-- close(). One call is under way on a connection at a time.

local msgpack = require "ratelimitd.msgpack"

local M = {}

local HELLO_MSGID = 0
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

local n_pools = 0 -- of all clients of this worker

function Client:begin_pool()
  n_pools = n_pools + 1
  self.pool = { name = self.path .. "#" .. n_pools, features = nil } -- those of its connections; nil: there is none so far
end

-- PATH of the daemon's socket; TIMEOUT_S for a whole call, connecting included.
function M.new(platform, path, timeout_s)
  local self = setmetatable({
    platform = platform, path = path, timeout_s = timeout_s,
    timeouts = 0, closed_until = 0, -- the breaker: timeouts in a row, and until when calls fail at once
    backoff_s = 0, retry_at = 0,
  }, Client)
  self:begin_pool()
  return self
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

-- The features that an answer to hello lists, in order and as one text: "" of an older daemon, or of one that answers otherwise.
local function features_of(answer)
  local features = {}
  local listed = type(answer) == "table" and answer.features
  for _, feature in ipairs(type(listed) == "table" and listed or {}) do
    if type(feature) == "string" then features[#features + 1] = feature end
  end
  table.sort(features)
  return table.concat(features, " ")
end

local function has(features, feature)
  return (" " .. features .. " "):find(" " .. feature .. " ", 1, true) ~= nil
end

-- The result that answers MSGID, or nil and a failure. ON_HELLO gets the result of hello if it comes before. Raises what
-- read() raises.
local function answer_to(msgid, read, on_hello)
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
    if message[2] == HELLO_MSGID then on_hello(message[4]) end
    if message[2] == msgid then
      if message[3] ~= nil and message[4] ~= nil then return nil, unavailable("protocol", "an error and a result", true) end
      if message[3] ~= nil then return nil, failure_of(message[3]) end
      return message[4]
    end
  end
end

-- Back to its pool, if the daemon has the same features as those of the others there.
function Client:keep(connection, pool, features)
  if connection.is_new then pool.features = pool.features or features end
  if connection.is_new and pool.features ~= features then
    if pool == self.pool then self:begin_pool() end
    return connection.close()
  end
  return connection.keep()
end

-- The result of METHOD, or nil and a failure: {kind, message, maybe_charged, code}. PARAMS is a list, or a function that gives
-- it by the features of the connection; WAITS: not before the daemon has listed them. TIMEOUT_S replaces the client's. The kind is
-- "refused" for a mistake that the daemon has found (`code` is its code), else why there is no answer: "unreachable", "timeout",
-- "lost", "protocol", "overloaded", "shutting_down", "store_unavailable" or "breaker".
function Client:call(method, params, timeout_s, waits)
  timeout_s = timeout_s or self.timeout_s
  local platform, pool = self.platform, self.pool
  local now = platform.now()
  local failure = self:barred(now)
  if failure then return nil, failure end

  local deadline = now + timeout_s
  local connection, message = platform.connect(self.path, timeout_s, pool.name)
  if not connection then
    if message == "timeout" then self:timed_out() end
    return nil, self:not_reached(message)
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

  local features = not connection.is_new and pool.features or "" -- of a new one they come with the answer to hello
  local function exchange(bytes, msgid)
    local is_sent, why = connection.send(bytes, timeout_s)
    if not is_sent then return nil, unavailable(why == "timeout" and "timeout" or "lost", "sending failed: " .. why, true) end
    local is_read, result, failed = pcall(answer_to, msgid, read, function(answer) features = features_of(answer) end)
    if is_read then return result, failed end
    return nil, type(result) == "table" and result or unavailable("protocol", tostring(result), true)
  end

  local bytes, result = "", nil
  if connection.is_new then
    bytes = msgpack.pack(msgpack.array { 0, HELLO_MSGID, "hello", msgpack.array { { describe = true } } })
    if waits then
      result, failure = exchange(bytes, HELLO_MSGID)
      bytes = ""
      if failure then failure.maybe_charged = false end
    end
  end
  if not failure or failure.kind == "refused" then -- an older daemon refuses hello
    local msgid = connection.calls + 1
    if type(params) == "function" then params = params(features) end
    result, failure = exchange(bytes .. msgpack.pack(msgpack.array { 0, msgid, method, msgpack.array(params) }), msgid)
  end

  if failure and failure.kind == "timeout" then self:timed_out() else self:reached() end
  if not failure or IS_ANSWER[failure.kind] then self:keep(connection, pool, features) else connection.close() end
  return result, failure
end

-- The policy as a daemon with these features takes it: one that does not know the name or the id of an inline policy gets neither.
local function sent(policy, features)
  if type(policy) ~= "table" then return policy end
  local settings = {}
  for name, value in pairs(policy) do settings[name] = value end
  for _, label in ipairs { "name", "id" } do
    if not has(features, label) then settings[label] = nil end
  end
  return settings
end

local function has_id(policy) return type(policy) == "table" and policy.id ~= nil end

-- METHOD is check, of one of MEMBERS, {policy, key, cost} each, or check_all.
function Client:check(method, members, timeout_s)
  local waits = false
  for _, member in ipairs(members) do waits = waits or has_id(member[1]) end
  return self:call(method, function(features)
    local params = {}
    for i, member in ipairs(members) do params[i] = msgpack.array { sent(member[1], features), member[2], member[3] } end
    return method == "check" and params[1] or { msgpack.array(params) }
  end, timeout_s, waits)
end

function Client:refund(policy, key, units)
  return self:call("refund", function(features) return { sent(policy, features), key, units } end, nil, has_id(policy))
end

function Client:policies() return self:call("policies", {}) end

return M
