-- ratelimitd.haproxy: the limiter in HAProxy 2.6 or newer.
--
--   local limiter = require("ratelimitd").new()
--   core.register_action("limit_web", { "http-req" }, function(txn) limiter:limit(txn, { policy = "web" }) end)
--
-- HAProxy has no pool of connections for Lua, so each call connects anew; on a Unix socket that costs little.

local limiter = require "ratelimitd.limiter"
local msgpack = require "ratelimitd.msgpack"

local platform = {} -- HAProxy has no name that could be the service

function platform.now()
  local time = core.now()
  return time.sec + time.usec / 1000000
end

function platform.log(text) core.Alert(text) end
function platform.warn(text) core.log(core.warning, text) end
function platform.notice(text) core.log(core.notice, text) end

local SCOPES = { proc = true, sess = true, txn = true, req = true, res = true }
function platform.is_variable(name) return SCOPES[name:match("^(%l+)%.[%w_.]+$")] ~= nil end

function platform.shared_dict() error("ratelimitd: remember_in is for nginx; HAProxy remembers in its own memory", 0) end

function platform.connect(path, timeout_s)
  local socket = core.tcp()
  socket:settimeout(timeout_s)
  local is_open, message = socket:connect("unix@" .. path)
  if not is_open then return nil, message or "refused" end

  local connection = { calls = 0, is_new = true }

  -- HAProxy reports "connection closed." also when time is up, and its clock has ticks of a millisecond.
  local function done(since, limit_s, value, reason)
    if value then return value end
    return nil, platform.now() - since >= limit_s - 0.002 and "timeout" or tostring(reason)
  end
  function connection.send(bytes, limit_s) return done(platform.now(), limit_s, socket:send(bytes)) end
  function connection.receive(n, limit_s)
    socket:settimeout(math.max(0.001, limit_s))
    return done(platform.now(), limit_s, socket:receive(n))
  end
  function connection.keep() socket:close() end
  function connection.close() socket:close() end
  return connection
end

local request = {}
request.__index = request

-- What a word of a key stands for. "header:NAME" is a header, "var:NAME" a variable that the configuration has set.
local FETCHES = {
  ip = function(txn) return txn.f:src() end,
  uri = function(txn) return txn.f:path() end,
  host = function(txn) return txn.sf:req_hdr("host") end,
  method = function(txn) return txn.f:method() end,
}

-- All lines of a header, joined as RFC 9110 joins them. req.hdr() would be the last part of the last line.
local function header(txn, name)
  local lines = txn.http:req_get_headers()[name:lower()]
  if not lines then return nil end
  local values = { lines[0] }
  for i = 1, #lines do values[#values + 1] = lines[i] end
  return table.concat(values, ", ")
end

function request:value(word)
  local txn = self.txn
  local kind, name = word:match("^(%a+):(.+)$")
  local value
  if kind == "header" then value = header(txn, name)
  elseif kind == "var" then value = txn:get_var(name)
  else value = FETCHES[word](txn) end
  if value == nil or value == "" then return nil end
  return tostring(value)
end

-- For the functions of a limit: the same, and "ip" as in a key.
function request:part(word) return self.limiter:part(word, self) end
function request.composite(_, ...) return limiter.composite(...) end

function request:own_service() return nil end

function request:sha256_hex(text)
  local converters = self.txn.c
  return converters:hex(converters:sha2(text, 256)):lower()
end

function request:is_preflight()
  local txn = self.txn
  return txn.f:method() == "OPTIONS" and txn.sf:req_hdr("origin") ~= ""
    and txn.sf:req_hdr("access-control-request-method") ~= ""
end

local Limiter = setmetatable({}, { __index = limiter.Limiter })
Limiter.__index = Limiter

-- Where the values for the answer's fields go.
local VARIABLES = {
  ["RateLimit"] = "txn.ratelimit", ["RateLimit-Policy"] = "txn.ratelimit_policy",
  ["X-RateLimit-Limit"] = "txn.x_ratelimit_limit", ["X-RateLimit-Remaining"] = "txn.x_ratelimit_remaining",
  ["X-RateLimit-Reset"] = "txn.x_ratelimit_reset",
}

-- What a rule or a log format may want of the decision: txn.ratelimit_remaining and the like.
local DECISION_VARIABLES = { "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "source", "of" }

-- The visit of a transaction lives in one of its variables, as MessagePack: it ends with the transaction.
local VISIT = "txn.ratelimit_visit"

local function visit_of(txn)
  local bytes, at = txn:get_var(VISIT), 0
  if not bytes then return { asked = {} } end
  local asked = msgpack.unpack(function(n)
    at = at + n
    return bytes:sub(at - n + 1, at)
  end)
  return { asked = asked }
end

local function keep_visit(txn, visit)
  if #visit.asked > 0 then txn:set_var(VISIT, msgpack.pack(msgpack.array(visit.asked))) end
end

local function show_decision(txn, decision)
  for _, field in ipairs(DECISION_VARIABLES) do
    local variable = "txn.ratelimit_" .. field
    if decision[field] == nil then txn:unset_var(variable) else txn:set_var(variable, tostring(decision[field])) end
  end
end

-- The fields of a limit replace those that the answer has.
local function send(txn, answer, fields)
  for _, field in ipairs(fields) do
    answer:del_header(field[1])
    answer:add_header(field[1], field[2])
  end
  txn:done(answer)
end

-- A mistake in the limits never lets a request through.
function Limiter:end_mistaken(txn, message)
  self:report_mistake(message)
  send(txn, txn:reply { status = 500, body = "Internal server error\n" }, { { "Content-Type", "text/plain; charset=utf-8" } })
end

local function sleep(seconds) core.msleep(math.ceil(seconds * 1000)) end

-- Limit the request of TXN, in an action of http-req: LIMITS is one limit, or a list of limits that are charged together or
-- not at all. A request that goes on gets variables with the values for the answer's fields: txn.ratelimit, txn.ratelimit_policy
-- and the like.
function Limiter:limit(txn, limits)
  local own, visit = setmetatable({ txn = txn, limiter = self }, request), visit_of(txn)
  local is_judged, outcome = pcall(self.judge, self, limits, own, txn.sf:req_hdr("accept"), visit)
  if not is_judged then return self:end_mistaken(txn, outcome) end

  if outcome.decision then show_decision(txn, outcome.decision) end
  if outcome.respond then
    local answer = outcome.respond(txn, outcome.decision)
    if answer then return send(txn, answer, outcome.headers) end
    return self:end_mistaken(txn, "ratelimitd: respond gave no reply; return txn:reply{ ... }")
  end
  if outcome.status then
    return send(txn, txn:reply { status = outcome.status, body = outcome.body }, outcome.headers)
  end
  keep_visit(txn, visit)
  for _, field in ipairs(outcome.headers) do txn:set_var(VARIABLES[field[1]], field[2]) end
  if outcome.delay_s then limiter.sleep_in_pieces(outcome.delay_s, sleep) end
  return outcome.decision
end

-- While the configuration is read: log the policies that the daemon does not have, as soon as HAProxy runs.
function Limiter:verify(names, inline)
  core.register_task(function() limiter.Limiter.verify(self, names, inline) end)
end

local M = { NOT_LIMITED = limiter.NOT_LIMITED }

-- For `skip`: true for the preflights of browsers.
function M.is_preflight(one) return one:is_preflight() end
Limiter.is_preflight = M.is_preflight

function M.new(options) return setmetatable(limiter.new(platform, options), Limiter) end

return M
