-- ratelimitd.haproxy: the limiter in HAProxy 2.6 or newer.
--
--   local limiter = require("ratelimitd").new()
--   core.register_action("limit_web", { "http-req" }, function(txn) limiter:limit(txn, { policy = "web" }) end)
--
-- HAProxy has no pool of connections for Lua, so each call connects anew; on a Unix socket that costs little.

local limiter = require "ratelimitd.limiter"

local platform = {}

function platform.now()
  local time = core.now()
  return time.sec + time.usec / 1000000
end

function platform.log(text) core.Alert(text) end

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

function request:part(word)
  local txn = self.txn
  local kind, name = word:match("^(%a+):(.+)$")
  local value
  if kind == "header" then value = header(txn, name)
  elseif kind == "var" then value = txn:get_var(name)
  elseif FETCHES[word] then value = FETCHES[word](txn)
  else error(("ratelimitd: no part of a key is called %q"):format(word), 0) end
  if value == nil or value == "" then return nil end
  return tostring(value)
end

function request:is_preflight()
  local txn = self.txn
  return txn.f:method() == "OPTIONS" and txn.sf:req_hdr("access-control-request-method") ~= ""
end

local Limiter = setmetatable({}, { __index = limiter.Limiter })
Limiter.__index = Limiter

-- Where the values for the answer's fields go.
local VARIABLES = {
  ["RateLimit"] = "txn.ratelimit", ["RateLimit-Policy"] = "txn.ratelimit_policy",
  ["X-RateLimit-Limit"] = "txn.ratelimit_limit", ["X-RateLimit-Remaining"] = "txn.ratelimit_remaining",
  ["X-RateLimit-Reset"] = "txn.ratelimit_reset",
}

local function reply(txn, status, fields, body)
  local answer = txn:reply { status = status, body = body }
  for _, field in ipairs(fields) do answer:add_header(field[1], field[2]) end
  txn:done(answer)
end

-- Limit the request of TXN, in an action of http-req: LIMITS is one limit, or a list of limits that are charged together or
-- not at all. A request that goes on gets variables with the values for the answer's fields: txn.ratelimit, txn.ratelimit_policy
-- and the like.
function Limiter:limit(txn, limits)
  platform.sha256_hex = function(text) return (txn.c:hex(txn.c:sha2(text, 256))):lower() end
  local is_judged, outcome = pcall(self.judge, self, limits, setmetatable({ txn = txn }, request), txn.sf:req_hdr("accept"))
  if not is_judged then
    self:report_mistake(outcome)
    return reply(txn, 500, { { "Content-Type", "text/plain; charset=utf-8" } }, "Internal server error\n")
  end

  if outcome.respond then return outcome.respond(txn, outcome.decision) end
  if outcome.status then return reply(txn, outcome.status, outcome.headers, outcome.body) end
  for _, field in ipairs(outcome.headers) do
    local variable = VARIABLES[field[1]]
    local earlier = txn:get_var(variable)
    txn:set_var(variable, earlier and earlier .. ", " .. field[2] or field[2])
  end
  if outcome.delay_s and outcome.delay_s > 0 then core.msleep(math.ceil(outcome.delay_s * 1000)) end
  return outcome.decision
end

-- While the configuration is read: log the policies that the daemon does not have, as soon as HAProxy runs.
function Limiter:verify(names, inline)
  core.register_task(function() limiter.Limiter.verify(self, names, inline) end)
end

local M = {}

function M.new(options) return setmetatable(limiter.new(platform, options), Limiter) end

return M
