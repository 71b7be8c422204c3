-- ratelimitd.limiter: the limits of an endpoint, from what its author wrote to what a request gets.
--
-- A request comes as an object of the platform's adapter: request:value(word) is what a word of a key stands for ("ip", "uri",
-- "header:X-Tenant" ...), or nil where the request does not have it; request:own_service() the platform's name for the service,
-- or nil; request:sha256_hex(text); request:is_preflight().

local client = require "ratelimitd.client"
local decisions = require "ratelimitd.decision"
local denials = require "ratelimitd.denials"
local http = require "ratelimitd.http"
local limit_of = require "ratelimitd.limit"
local msgpack = require "ratelimitd.msgpack"

local M = {}

local KEY_BYTES_MAX, KEY_BYTES_KEPT = 512, 64
local LOG_EVERY_SECONDS = 10
local PATH_BYTES_MAX = 107 -- of a Unix socket

local Limiter = {}
Limiter.__index = Limiter

local OPTIONS = limit_of.known {
  socket = "string", timeout = "number", on_error = "string function", ipv6_prefix = "number", headers = "string",
  reset = "string", enabled = "boolean", on_decision = "function", service = "string", remember_denials = "number",
  remember_in = "string",
}

-- The service in front of the keys of limits that are written at an endpoint, and where its name is from. nil: the request's own.
function M.service_of(option, getenv)
  if option then return option, "the option service" end
  for _, variable in ipairs { "RATELIMIT_SERVICE", "OTEL_SERVICE_NAME" } do
    local name = getenv(variable)
    if name then return name, "$" .. variable end
  end
  return nil
end

local function denials_of(platform, options)
  local for_ms = options.remember_denials or 0
  if for_ms < 0 or for_ms ~= math.floor(for_ms) then
    error("ratelimitd: remember_denials is not a whole number of milliseconds from 0: " .. for_ms, 0)
  end
  local dict = options.remember_in and platform.shared_dict(options.remember_in)
  return for_ms > 0 and denials.new(for_ms, dict) or nil
end

-- Options, all optional: socket (path), timeout (ms, 250), on_error ("allow", "deny" or a function of the failure that
-- returns one of them), ipv6_prefix (bits, 64), headers ("ietf", "legacy", "both", "none"), reset ("delta" or "epoch", of the
-- legacy headers), enabled, on_decision (a function of the decision), service (a name; "" for none), remember_denials (ms),
-- remember_in (the name of a shared dict of nginx).
function M.new(platform, options)
  options = options or {}
  limit_of.refuse_mistakes(options, OPTIONS, "new")
  local from_environment = os.getenv("RATELIMIT_SOCKET")
  if from_environment == "" then from_environment = nil end
  local path = options.socket or from_environment or "/run/ratelimitd/ratelimitd.sock"
  if path == "" or #path > PATH_BYTES_MAX then
    error(("ratelimitd: the path of a socket has 1 to %d bytes"):format(PATH_BYTES_MAX), 0)
  end

  local service, service_from = M.service_of(options.service, os.getenv)
  local self = setmetatable({
    platform = platform,
    client = client.new(platform, path, (options.timeout or 250) / 1000),
    on_error = limit_of.checked_on_error(options.on_error) or "allow",
    ipv6_prefix = options.ipv6_prefix or 64,
    headers = limit_of.checked_form(options.headers) or "ietf",
    reset = limit_of.checked_reset(options.reset) or "delta",
    is_enabled = options.enabled ~= false and os.getenv("RATELIMIT_ENABLED") ~= "0",
    on_decision = options.on_decision,
    service = service,
    denials = denials_of(platform, options),
    counters = { checks = 0, allowed = 0, denied = 0, remembered = 0, refused = 0, unavailable = {} },
    log_at = {}, -- by kind of line
  }, Limiter)

  if not self.is_enabled then
    platform.notice("ratelimitd: limits are switched off: every request passes without being asked for")
  elseif service then
    platform.notice(("ratelimitd: limits that are written here count %s (from %s)"):format(
      service == "" and "without a service" or "for the service " .. service, service_from))
  else
    platform.notice("ratelimitd: limits that are written here count " .. platform.OWN_SERVICE)
  end
  return self
end

function M.shorten(key, request)
  if #key <= KEY_BYTES_MAX then return key end
  return key:sub(1, KEY_BYTES_KEPT) .. "#" .. request:sha256_hex(key)
end

-- What a word of a key stands for, or nil. The address of the client in the form of a key.
function Limiter:part(word, request)
  local value = request:value(word)
  if word ~= "ip" or value == nil then return value end

  local address, message = http.ip_key(value, self.ipv6_prefix)
  if not address then error("ratelimitd: " .. message, 0) end
  return address
end

-- The key of a limit for this request, under a policy of its own or not; nil: do not limit it.
function Limiter:key_of(limit, is_inline, request)
  local key
  if type(limit.key) == "function" then
    key = limit.key(request)
    if key == nil then return nil end
    if type(key) == "table" then key = http.join(key) end
  else
    local parts = {}
    for word in (limit.key or "ip"):gmatch("[^|]+") do
      local part = self:part(word, request)
      if part == nil then return nil end
      parts[#parts + 1] = part
    end
    key = #parts == 1 and parts[1] or http.join(parts)
  end
  if type(key) ~= "string" then error(("ratelimitd: the key of a limit is a %s, not a text"):format(type(key)), 0) end
  if key == "" then error("ratelimitd: the key of a limit is empty", 0) end
  return M.shorten(is_inline and self:front_of(limit, request) .. key or key, request)
end

-- "SERVICE|ENDPOINT|": equal settings share their counters. Neither nginx nor HAProxy tells which place of the configuration runs.
function Limiter:front_of(limit, request)
  local endpoint = limit.endpoint or limit.name
  if not endpoint then
    error('ratelimitd: a limit that is written here needs a name for its counters: endpoint = "export", or name = "export"', 0)
  end
  local service = self.service or request:own_service() or ""
  return http.join(service == "" and { endpoint } or { service, endpoint }) .. "|"
end

-- What is asked for a request: members {policy, key, cost}, each policy and key once, and the limit of each member.
function Limiter:members_of(limits, request)
  local members, asked, seen = {}, {}, {}
  for _, limit in ipairs(limits) do
    limit_of.check(limit)
    local is_asked = limit.enabled ~= false and not (limit.skip and limit.skip(request))
    local policy = is_asked and limit_of.policy_of(limit, request) or nil
    local key = policy and self:key_of(limit, type(policy) == "table", request)

    local id = key and (#limits == 1 or msgpack.pack(policy) .. key)
    if key and not seen[id] then
      seen[id] = true
      members[#members + 1] = msgpack.array { policy, key, limit_of.cost_of(limit, request) }
      asked[#asked + 1] = limit
    end
  end
  return members, asked
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

-- What the daemon answers to METHOD, check or check_all of MEMBERS, {policy, key, cost} each; or nil and a failure.
function Limiter:ask_daemon(method, members, timeout_s)
  local answer, failure = self.client:check(method, members, timeout_s)
  local decision = not failure and decisions.read(answer, method, members)
  if decision then
    decisions.put_names(decision, members)
    return decision
  end

  failure = failure or { kind = "protocol", message = "an answer that is not a decision", maybe_charged = true }
  local counters = self.counters
  if failure.kind == "refused" then counters.refused = counters.refused + 1
  else counters.unavailable[failure.kind] = (counters.unavailable[failure.kind] or 0) + 1 end
  return nil, failure
end

-- The same, where a denial may be remembered. Each call is one check of the counters.
function Limiter:decide(method, members, timeout_s)
  for _, member in ipairs(members) do
    if type(member[1]) == "table" then limit_of.checked_name(member[1].name) end
  end

  local counters = self.counters
  counters.checks = counters.checks + 1
  local question = self.denials and method .. msgpack.pack(msgpack.array(members))
  local asked_at_ms = self.platform.now() * 1000
  local decision, failure = question and self.denials:find(question, asked_at_ms), nil
  if decision then
    counters.remembered = counters.remembered + 1
  else
    decision, failure = self:ask_daemon(method, members, timeout_s)
    if failure then return nil, failure end
    if question then self.denials:keep(question, decision, asked_at_ms) end
  end

  local verdict = decision.allowed and "allowed" or "denied"
  counters[verdict] = counters[verdict] + 1
  if self.on_decision then
    local is_done, message = pcall(self.on_decision, decision)
    if not is_done then self:report("on_decision", "ratelimitd: on_decision raised " .. tostring(message)) end
  end
  return decision
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

function Limiter:without_answer(failure, asked, accept)
  local is_denied = self:is_denied(failure, asked)
  self:report("unavailable", ("ratelimitd: no decision, %s: %s: %s"):format(
    is_denied and "requests are answered 503" or "requests pass", failure.kind, failure.message))
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
-- answer; {status, headers, body} to end it. `decision` is there where somebody decided, of several limits that which denied or
-- has least left; `delay_s` where the daemon asks to wait. A mistake in the configuration raises.
function Limiter:judge(limits, request, accept)
  if type(limits) == "string" then limits = { policy = limits } end
  if #limits == 0 then limits = { limits } end
  if not self.is_enabled or request:is_preflight() then return { headers = {} } end

  local members, asked = self:members_of(limits, request)
  if #members == 0 then return { headers = {} } end

  local whole, failure = self:decide(#members == 1 and "check" or "check_all", members)
  if failure and failure.kind == "refused" then error("ratelimitd: " .. failure.message, 0) end
  if failure then return self:without_answer(failure, asked, accept) end

  local form, decision, now_ms = {}, decisions.tightest(whole), os.time() * 1000
  for i, limit in ipairs(asked) do form[i] = limit.headers or self.headers end
  if whole.allowed then
    local headers = http.headers(whole, form, self.reset, now_ms)
    return { decision = decision, headers = headers, delay_s = whole.delay_ms / 1000 }
  end

  local status, headers, body = http.denial(whole, accept, form, self.reset, now_ms)
  local respond = denying(whole, asked).respond
  if respond then table.remove(headers) end -- the Content-Type, of the body that is not used
  return { decision = decision, status = status, headers = headers, body = body, respond = respond }
end

-- The policies among NAMES that count denials, which a remembered denial does not reach.
local function counting_denials(policies, is_wanted)
  local found = {}
  for _, policy in ipairs(policies) do
    for _, limit in ipairs(is_wanted[policy.name] and policy.limits or {}) do
      if limit.count_denied == true then
        found[#found + 1] = policy.name
        break
      end
    end
  end
  return found
end

-- Ask the daemon whether it has these policies, and with `inline` whether it allows limits that are written here. What is
-- missing is logged as an error. Returns the missing names, or nil and a failure.
function Limiter:verify(names, inline)
  if not self.is_enabled then return {} end
  local policies, failure = self.client:call("policies", {})
  if not failure and inline then
    _, failure = self.client:check("check", { { limit_of.parse_limit("1/s"), "verify", 0 } })
  end
  if failure then
    self.platform.log("ratelimitd: the limits could not be verified: " .. failure.message)
    return nil, failure
  end

  local known, wanted, missing = {}, {}, {}
  for _, policy in ipairs(policies) do known[policy.name] = true end
  for _, name in ipairs(names) do
    wanted[name] = true
    if not known[name] then
      missing[#missing + 1] = name
      self.platform.log(("ratelimitd: the daemon has no policy %q"):format(name))
    end
  end

  local counting = self.denials and counting_denials(policies, wanted) or {}
  if #counting > 0 then
    self.platform.log("ratelimitd: denials are remembered, so these policies with count_denied do not count them: "
      .. table.concat(counting, ", "))
  end
  return missing
end

-- Counters of this worker: {checks, allowed, denied, remembered, refused, unavailable = {kind = n}}.
function Limiter:stats() return self.counters end

M.Limiter = Limiter
return M
