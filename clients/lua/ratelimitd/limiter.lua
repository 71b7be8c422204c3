-- ratelimitd.limiter: the limits of an endpoint, from what its author wrote to what a request gets.
--
-- A request comes as an object of the platform's adapter: request:part(name) is what a word of a key stands for ("ip", "uri",
-- "header:X-Tenant" ...), or nil where the request does not have it.

local client = require "ratelimitd.client"
local http = require "ratelimitd.http"
local msgpack = require "ratelimitd.msgpack"

local M = {}

local KEY_BYTES_MAX, KEY_BYTES_KEPT = 512, 64
local LOG_EVERY_SECONDS = 10
local PATH_BYTES_MAX = 107 -- of a Unix socket

local Limiter = {}
Limiter.__index = Limiter

local function set_of(words)
  local set = {}
  for word in words:gmatch("%S+") do set[word] = true end
  return set
end

-- The options, and the types that each may have.
local LIMITER_OPTIONS = {
  socket = "string", timeout = "number", on_error = "string function", ipv6_prefix = "number", headers = "string",
  reset = "string", enabled = "boolean", on_decision = "function",
}
local LIMIT_OPTIONS = {
  policy = "string function", limit = "number string function", window = "string function", algorithm = "string",
  name = "string", key = "string function", cost = "number function", skip = "function", on_error = "string function",
  headers = "string", respond = "function", enabled = "boolean",
}

local function names_of(options)
  local names = {}
  for name in pairs(options) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, ", ")
end

local function refuse_mistakes(options, known, where)
  for name, value in pairs(options) do
    local types = known[name]
    if not types then
      error(("ratelimitd: %s does not know the option %q; it has %s"):format(where, tostring(name), names_of(known)), 0)
    end
    if not set_of(types)[type(value)] then
      error(("ratelimitd: %s of %s is a %s; write a %s"):format(name, where, type(value), (types:gsub(" ", " or a "))), 0)
    end
  end
end

local FORMS = set_of "ietf legacy both none"
local RESETS = set_of "delta epoch"
local UNITS = { ms = "ms", s = "s", m = "m", h = "h", d = "d", second = "s", minute = "m", hour = "h", day = "d" }

local function checked_on_error(value)
  if value == nil or value == "allow" or value == "deny" or type(value) == "function" then return value end
  error(('ratelimitd: on_error is "allow", "deny" or a function, not %q'):format(tostring(value)), 0)
end

local function checked_form(value)
  if value == nil or FORMS[value] then return value end
  error(('ratelimitd: headers is "ietf", "legacy", "both" or "none", not %q'):format(tostring(value)), 0)
end

local function checked_reset(value)
  if value == nil or RESETS[value] then return value end
  error(('ratelimitd: reset is "delta" or "epoch", not %q'):format(tostring(value)), 0)
end

-- Options, all optional: socket (path), timeout (ms, 250), on_error ("allow", "deny" or a function of the failure that
-- returns one of them), ipv6_prefix (bits, 64), headers ("ietf", "legacy", "both", "none"), reset ("delta" or "epoch", of the
-- legacy headers), enabled, on_decision (a function of the decision).
function M.new(platform, options)
  options = options or {}
  refuse_mistakes(options, LIMITER_OPTIONS, "new")
  local from_environment = os.getenv("RATELIMIT_SOCKET")
  if from_environment == "" then from_environment = nil end
  local path = options.socket or from_environment or "/run/ratelimitd/ratelimitd.sock"
  if path == "" or #path > PATH_BYTES_MAX then
    error(("ratelimitd: the path of a socket has 1 to %d bytes"):format(PATH_BYTES_MAX), 0)
  end

  return setmetatable({
    platform = platform,
    client = client.new(platform, path, (options.timeout or 250) / 1000),
    on_error = checked_on_error(options.on_error) or "allow",
    ipv6_prefix = options.ipv6_prefix or 64,
    headers = checked_form(options.headers) or "ietf",
    reset = checked_reset(options.reset) or "delta",
    is_enabled = options.enabled ~= false and os.getenv("RATELIMIT_ENABLED") ~= "0",
    on_decision = options.on_decision,
    counters = { checks = 0, allowed = 0, denied = 0, refused = 0, unavailable = {} },
    log_at = {}, -- by kind of line
  }, Limiter)
end

-- "10/5s" or "5000/day" as a count and a window.
local function parse_limit(text)
  local count, length, unit = text:match("^%s*([1-9]%d*)%s*/%s*(%d*)%s*(%a+)%s*$")
  unit = UNITS[unit] or unit and UNITS[unit:match("^(%a%a+)s$")]
  if not unit or length:match("^0") then
    error(('ratelimitd: %q is not a limit such as "10/5s" or "5000/day"'):format(text), 0)
  end
  return tonumber(count), (length == "" and "1" or length) .. unit
end

-- The value of an option that may be a function of the request.
local function value_of(option, request)
  if type(option) == "function" then return option(request) end
  return option
end

-- The policy of a limit for this request: a name, or the settings of an inline one.
local function policy_of(limit, request)
  if limit.policy then
    if limit.limit then error("ratelimitd: a limit has a policy or a limit of its own, not both", 0) end
    local name = value_of(limit.policy, request)
    if type(name) ~= "string" or name == "" then error("ratelimitd: policy gave no name", 0) end
    return name
  end
  local count, window = value_of(limit.limit, request), value_of(limit.window, request)
  if type(count) == "string" then count, window = parse_limit(count) end
  if not count or not window then
    error('ratelimitd: a limit needs policy = "NAME", or limit = "10/5s", or limit = 10 and window = "5s"', 0)
  end
  if not limit.name then
    error('ratelimitd: a limit written at an endpoint needs a name of that endpoint: name = "export"', 0)
  end
  local algorithm = limit.algorithm or "fixed_window"
  return { algorithm = algorithm, limit = count, window = window,
           start = algorithm == "fixed_window" and "first_hit" or nil }
end

function Limiter:shorten(key)
  if #key <= KEY_BYTES_MAX then return key end
  return key:sub(1, KEY_BYTES_KEPT) .. "#" .. self.platform.sha256_hex(key)
end

-- The key of a limit for this request; nil: do not limit it.
function Limiter:key_of(limit, request)
  local key
  if type(limit.key) == "function" then
    key = limit.key(request)
    if key == nil then return nil end
  else
    local parts = {}
    for word in (limit.key or "ip"):gmatch("[^|]+") do
      local part = request:part(word)
      if part == nil then return nil end
      if word == "ip" then
        local address, message = http.ip_key(part, self.ipv6_prefix)
        if not address then error("ratelimitd: " .. message, 0) end
        part = address
      end
      parts[#parts + 1] = part
    end
    key = #parts == 1 and parts[1] or http.join(parts)
  end
  if key == "" then error("ratelimitd: the key of a limit is empty", 0) end

  if not limit.policy then key = http.join { limit.name } .. "|" .. key end -- equal settings share their counters
  return self:shorten(key)
end

-- What is asked for a request: members {policy, key, cost}, each policy and key once, and the limit of each member.
function Limiter:members_of(limits, request)
  local members, asked, seen = {}, {}, {}
  for _, limit in ipairs(limits) do
    refuse_mistakes(limit, LIMIT_OPTIONS, "limit")
    checked_on_error(limit.on_error)
    checked_form(limit.headers)

    local policy = policy_of(limit, request)
    local is_asked = limit.enabled ~= false and not (limit.skip and limit.skip(request))
    local key = is_asked and self:key_of(limit, request) or nil
    local cost = value_of(limit.cost, request)

    local id = type(policy) == "string" and policy .. "\0" .. (key or "") or nil
    if key and not (id and seen[id]) then
      members[#members + 1] = msgpack.array { policy, key, cost or 1 }
      asked[#asked + 1] = limit
      if id then seen[id] = true end
    end
  end
  return members, asked
end

-- Without an answer: does one of these limits deny?
function Limiter:is_denied(failure, asked)
  local is_denied = false
  for _, limit in ipairs(asked) do
    local rule = limit.on_error or self.on_error
    if type(rule) == "function" then
      rule = rule(failure)
      if rule ~= "allow" and rule ~= "deny" then
        error(('ratelimitd: on_error gave %q, not "allow" or "deny"'):format(tostring(rule)), 0)
      end
    end
    is_denied = is_denied or rule == "deny"
  end
  return is_denied
end

-- One line of each KIND in ten seconds.
function Limiter:report(kind, text)
  local now = self.platform.now()
  if now < (self.log_at[kind] or 0) then return end
  self.log_at[kind] = now + LOG_EVERY_SECONDS
  self.platform.log(text)
end

-- What judge() raised: a mistake in the limits, for each request anew.
function Limiter:report_mistake(message) self:report("mistake", tostring(message)) end

function Limiter:without_answer(failure, asked, accept)
  local counts = self.counters.unavailable
  counts[failure.kind] = (counts[failure.kind] or 0) + 1

  local is_denied = self:is_denied(failure, asked)
  self:report("unavailable", ("ratelimitd: %s; requests are %s"):format(
    failure.message, is_denied and "denied" or "let through, without a limit"))
  if not is_denied then return { headers = {} } end
  local status, headers, body = http.denial(nil, accept)
  return { status = status, headers = headers, body = body }
end

-- The limit that denied: the first one, if the daemon denied for all of them.
local function denying(decision, asked)
  for i, member in ipairs(decision.members or {}) do
    if not member.allowed then return asked[i] end
  end
  return asked[1]
end

-- What a request gets under LIMITS (one, or a list of which all or none is charged): {headers} to go on, with headers for the
-- answer; {status, headers, body} to end it. `decision` is there where the daemon decided, `delay_s` where it asks to wait.
-- A mistake in the configuration raises.
function Limiter:judge(limits, request, accept)
  if type(limits) == "string" then limits = { policy = limits } end
  if #limits == 0 then limits = { limits } end
  if not self.is_enabled or request:is_preflight() then return { headers = {} } end

  local members, asked = self:members_of(limits, request)
  if #members == 0 then return { headers = {} } end

  local decision, failure
  self.counters.checks = self.counters.checks + 1
  if #members == 1 then decision, failure = self.client:call("check", members[1])
  else decision, failure = self.client:call("check_all", { msgpack.array(members) }) end

  if failure and failure.kind == "refused" then
    self.counters.refused = self.counters.refused + 1
    error("ratelimitd: " .. failure.message, 0)
  end
  if not failure and not client.is_answer(decision, #members) then
    failure = { kind = "protocol", message = "an answer that is not a decision", maybe_charged = true }
  end
  if failure then return self:without_answer(failure, asked, accept) end

  if self.on_decision then self.on_decision(decision) end
  local form = {}
  for i, limit in ipairs(asked) do form[i] = limit.headers or self.headers end
  if decision.allowed then
    self.counters.allowed = self.counters.allowed + 1
    return { decision = decision, headers = http.headers(decision, form, self.reset, os.time() * 1000),
             delay_s = (decision.delay_ms or 0) / 1000 }
  end

  self.counters.denied = self.counters.denied + 1
  local respond = denying(decision, asked).respond
  if respond then
    local fields = http.headers(decision, form, self.reset, os.time() * 1000)
    return { decision = decision, respond = respond, headers = fields }
  end
  local status, headers, body = http.denial(decision, accept, form, self.reset, os.time() * 1000)
  return { decision = decision, status = status, headers = headers, body = body }
end

-- Ask the daemon whether it has these policies, and with `inline` whether it allows limits that are written here. What is
-- missing is logged as an error. Returns the missing names, or nil and a failure.
function Limiter:verify(names, inline)
  local policies, failure = self.client:call("policies", {})
  if not failure and inline then
    local settings = { algorithm = "fixed_window", limit = 1, window = "1s", start = "first_hit" }
    local _, refusal = self.client:call("check", { settings, "verify", 0 })
    failure = refusal
  end
  if failure then
    self.platform.log("ratelimitd: the limits could not be verified: " .. failure.message)
    return nil, failure
  end

  local known, missing = {}, {}
  for _, policy in ipairs(policies) do known[policy.name] = true end
  for _, name in ipairs(names) do
    if not known[name] then
      missing[#missing + 1] = name
      self.platform.log(("ratelimitd: the daemon has no policy %q"):format(name))
    end
  end
  return missing
end

-- Counters of this worker: {checks, allowed, denied, refused, unavailable = {kind = n}}.
function Limiter:stats() return self.counters end

M.Limiter, M.parse_limit = Limiter, parse_limit
return M
