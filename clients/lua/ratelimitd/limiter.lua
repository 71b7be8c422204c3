-- ratelimitd.limiter: the limits of a request, from what their author wrote to what the request gets.
--
-- A request comes as an object of the platform's adapter: request:value(word) is what a word of a key stands for ("ip", "uri",
-- "header:X-Tenant" ...), or nil where the request does not have it; request:own_service() the platform's name for the service,
-- or nil; request:sha256_hex(text); request:is_preflight().
--
-- A request may come to limits at several places. Its visit, a table without functions that the adapter keeps for it, has what
-- was asked so far: {id, policy, key, cost, socket, form, decision, is_returned} each.

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
local TIMEOUT_MS_MAX, SLEEP_MAX_S = 2 ^ 31 - 1, 2 ^ 20
local PLACES_MAX = 1000
local SHARED_SERVICES = { [""] = true, _ = true, app = true, main = true, localhost = true }

local Limiter = { NOT_LIMITED = limit_of.NOT_LIMITED }
Limiter.__index = Limiter

local limiters = {} -- of this worker, by socket: the newest one gives back what was charged there

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
  local timeout_ms = options.timeout or 250
  if not (timeout_ms > 0 and timeout_ms <= TIMEOUT_MS_MAX) then
    error(("ratelimitd: timeout is above 0 and at most %d ms, not %s"):format(TIMEOUT_MS_MAX, tostring(timeout_ms)), 0)
  end

  local service, service_from = M.service_of(options.service, os.getenv)
  local self = setmetatable({
    platform = platform,
    client = client.new(platform, path, timeout_ms / 1000),
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
    said = { n = 0 }, -- what is said once
    counting = {}, -- by policy and version: does it count denials?
  }, Limiter)
  limiters[path] = self

  if not self.is_enabled then
    platform.warn(("ratelimitd: %s: limits are switched off: every request passes without being asked for"):format(
      options.enabled == false and "enabled = false" or "RATELIMIT_ENABLED=0"))
  elseif service or not platform.OWN_SERVICE then
    self:say_service(service or "", service_from)
  else
    platform.notice("ratelimitd: limits that are written here count " .. platform.OWN_SERVICE)
  end
  return self
end

-- Once for each service.
function Limiter:say_service(service, from)
  local is_shared = SHARED_SERVICES[service]
  self:say_once(is_shared and self.platform.warn or self.platform.notice, "service " .. service, function()
    return ("ratelimitd: limits that are written here count %s%s%s"):format(
      service == "" and "without a service" or "for the service " .. service, from and " (from " .. from .. ")" or "",
      is_shared and ": all who do so share their counters; write RATELIMIT_SERVICE, or service = in new" or "")
  end)
end

-- TEXT is a function that gives the line.
function Limiter:say_once(write, what, text)
  local said = self.said
  if said[what] or said.n >= PLACES_MAX then return end
  said[what], said.n = true, said.n + 1
  write(text())
end

-- For a wait that may be longer than a timer of the platform takes.
function M.sleep_in_pieces(seconds, sleep)
  while seconds > 0 do
    sleep(math.min(seconds, SLEEP_MAX_S))
    seconds = seconds - SLEEP_MAX_S
  end
end

M.NOT_LIMITED = limit_of.NOT_LIMITED
local unpack = table.unpack or unpack -- luacheck: ignore

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

-- Parts of a key in one text; NOT_LIMITED if one is that; nil: one of them is nil or empty. They are arguments, because a list cannot show a nil at its end.
function M.composite(...)
  local parts = { ... }
  for i = 1, select("#", ...) do
    if parts[i] == M.NOT_LIMITED then return M.NOT_LIMITED end
  end
  for i = 1, select("#", ...) do
    if parts[i] == nil or parts[i] == "" then return nil end
  end
  return http.join(parts)
end

-- A list of parts that a function gave; nil: it has none, an empty one, or a hole.
local function joined(parts)
  local n = 0
  for _ in pairs(parts) do n = n + 1 end
  if n == 0 or n ~= #parts then return nil end
  return M.composite(unpack(parts, 1, n))
end

-- The key of a limit for this request as its author means it; NOT_LIMITED; nil: it has none.
function Limiter:key_of(limit, request)
  local key
  if type(limit.key) == "function" then
    key = limit.key(request)
    if type(key) == "table" and key ~= M.NOT_LIMITED then key = joined(key) end
    if key == nil or key == "" or key == M.NOT_LIMITED then return key ~= "" and key or nil end
    if type(key) ~= "string" then
      error(("ratelimitd: the key of a limit is a %s, not a text"):format(type(key)), 0)
    end
    return key
  end

  local parts = {}
  for i, word in ipairs(limit_of.words_of(limit.key or "ip", self.platform.is_variable)) do
    parts[i] = self:part(word, request)
    if parts[i] == nil then return nil end
  end
  return #parts == 1 and parts[1] or http.join(parts)
end

-- The name in front of the keys of a limit that is written here. Neither nginx nor HAProxy tells which place of the configuration
-- runs, so it is always written.
local function endpoint_of(limit)
  local endpoint = limit.endpoint or limit.name
  if endpoint then return endpoint end
  error('ratelimitd: a limit that is written here needs a name for its counters: endpoint = "export", or name = "export"', 0)
end

-- "SERVICE|ENDPOINT|": equal settings share their counters.
function Limiter:front_of(endpoint, request)
  local service = self.service
  if not service then
    service = request:own_service() or ""
    self:say_service(service)
  end
  return http.join(service == "" and { endpoint } or { service, endpoint }) .. "|"
end

-- Where in the configuration a limit is asked: "rewrite_by_lua(nginx.conf:12):1".
local function place()
  local level = 2
  while true do
    local frame = debug.getinfo(level, "Sl")
    if not frame then return "an unknown place" end
    if frame.what ~= "C" and not frame.source:find("ratelimitd/%l+%.lua$") then
      return ("%s:%d"):format(frame.short_src, frame.currentline)
    end
    level = level + 1
  end
end

-- WHAT is "no key" or "no policy".
function Limiter:say_nothing_given(what, limit)
  local name = limit.endpoint or limit.name
  local where = (name and name .. " at " or "") .. place()
  self:say_once(self.platform.warn, what .. where, function()
    return ("ratelimitd: %s for the limit of %s: %s (NOT_LIMITED switches a limit off)"):format(
      what, where, limit.on_error == "allow" and "it is left out" or "such requests are answered 503")
  end)
end

-- The same counter: it is charged once a request. What moves does not matter.
function Limiter:id_of(policy, key)
  if type(policy) == "table" and policy.id then
    local moving = {}
    for name, value in pairs(policy) do moving[name] = name ~= "limit" and value or nil end
    policy = moving
  end
  return self.client.path .. "\n" .. msgpack.pack(policy) .. msgpack.pack(key)
end

-- The units that earlier places of this request have charged to a counter.
local function charged_before(visit, id)
  local units = 0
  for _, one in ipairs(visit.asked) do
    if one.id == id and not one.is_returned and one.decision and one.decision.allowed then units = units + one.cost end
  end
  return units
end

-- What is asked at this place of a request, as a visit has it, and the limit of each; nil: a limit has no key.
function Limiter:questions_of(limits, request, visit)
  local asked, limit_at, at, n_moving, lacks_key = {}, {}, {}, {}, false
  for _, limit in ipairs(limits) do
    limit_of.check(limit)
    if type(limit.key) == "string" then limit_of.words_of(limit.key, self.platform.is_variable) end
    local is_asked = limit.enabled ~= false and not (limit.skip and limit.skip(request))
    local policy = M.NOT_LIMITED
    if is_asked then policy = limit_of.policy_of(limit, request) end
    local key = policy
    if policy and policy ~= M.NOT_LIMITED then key = self:key_of(limit, request) end

    if not key then
      self:say_nothing_given(policy and "no key" or "no policy", limit)
      lacks_key = lacks_key or limit.on_error ~= "allow"
    elseif key ~= M.NOT_LIMITED then
      if type(policy) == "table" then
        local endpoint = endpoint_of(limit)
        if limit_of.is_moving(limit) then
          n_moving[endpoint] = (n_moving[endpoint] or 0) + 1
          limit_of.with_id(policy, endpoint, n_moving[endpoint], function(text) return request:sha256_hex(text) end)
        end
        key = self:front_of(endpoint, request) .. key
      end
      key = M.shorten(key, request)

      local id, cost = self:id_of(policy, key), limit_of.cost_of(limit, request)
      local before = charged_before(visit, id)
      if at[id] then
        local same = asked[at[id]]
        same.cost = math.max(same.cost, cost - before)
      elseif before == 0 or cost > before then -- of several costs the highest one counts
        at[id] = #asked + 1
        limit_at[#asked + 1] = limit
        asked[#asked + 1] = {
          id = id, policy = policy, key = key, cost = cost - before,
          socket = self.client.path, form = limit.headers or self.headers,
        }
      end
    end
  end
  return not lacks_key and asked or nil, limit_at
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
  local asked_at_ms = self.platform.now() * 1000
  local decision, failure = self.denials and self.denials:find(method, members, asked_at_ms), nil
  if decision then
    counters.remembered = counters.remembered + 1
  else
    decision, failure = self:ask_daemon(method, members, timeout_s)
    if failure then return nil, failure end
    if self.denials then self.denials:keep(method, members, decision, asked_at_ms) end
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
function Limiter:is_denied(failure, limit_at)
  local is_denied = false
  for _, limit in ipairs(limit_at) do
    local rule = limit.on_error or self.on_error
    if type(rule) == "function" then
      rule = rule(failure)
      if rule ~= "allow" and rule ~= "deny" then
        error(('ratelimitd: on_error gave %q, not "allow" or "deny"'):format(tostring(rule)), 0)
      end
    end
    is_denied = is_denied or rule == "deny"
  end
  self:report("unavailable", ("ratelimitd: no decision, %s: %s: %s"):format(
    is_denied and "requests are answered 503" or "requests pass", failure.kind, failure.message))
  return is_denied
end

-- Does this policy count denied requests? The daemon lists it; what it said holds for that version of the policy.
function Limiter:counts_denials(one)
  if type(one.policy) == "table" then return one.policy.count_denied == true end
  local version = ("%s@%s"):format(one.policy, tostring(one.decision.policy_version))
  if self.counting[version] == nil then
    local policies = self.client:policies()
    if not policies then return false end
    self.counting[version] = #M.counting_denials(policies, { [one.policy] = true }) > 0
  end
  return self.counting[version]
end

-- What was charged to the counter of ONE, a member of a visit, goes back, if its policy can.
function Limiter:refund(one, units)
  if units == 0 or self:counts_denials(one) then return end
  local decision, failure = self.client:refund(one.policy, one.key, units)
  if self.denials then self.denials:forget(one.policy, one.key, self.platform.now() * 1000) end
  if failure and failure.kind ~= "refused" then
    local unavailable = self.counters.unavailable
    unavailable[failure.kind] = (unavailable[failure.kind] or 0) + 1
    self:report("refund", ("ratelimitd: an earlier limit of a denied request stays charged: %s: %s"):format(
      failure.kind, failure.message))
  elseif failure and failure.code ~= "UNSUPPORTED" then -- of a policy that has no units to give back
    error("ratelimitd: " .. failure.message, 0)
  elseif decision and decision.of then
    decisions.put_names(decision, { { one.policy } })
    one.decision = decision
  end
end

-- A place refuses the request: earlier ones charge nothing either.
local function give_back(visit)
  for i, one in ipairs(visit.asked) do
    local units, newest = 0, one
    for j = i, #visit.asked do
      local same = visit.asked[j]
      if same.id == one.id and not same.is_returned then
        local decision = same.decision
        if decision and decision.allowed and decisions.is_counted(decision) then units = units + same.cost end
        if decision then newest = same end
        same.is_returned = true
      end
    end
    if newest.decision then limiters[newest.socket]:refund(newest, units) end
  end
end

-- The newest decision about each counter of a visit, and the form of its fields; of those with one name the tightest.
local function shown(visit)
  local newest = {}
  for _, one in ipairs(visit.asked) do
    if one.decision then newest[one.id] = one end
  end
  local found, forms, at = {}, {}, {}
  for _, one in ipairs(visit.asked) do
    local decision = one.decision
    if newest[one.id] == one then
      local i = decision.of and at[decision.of] or #found + 1
      if not found[i] or decisions.is_tighter(decision, found[i]) then found[i], forms[i] = decision, one.form end
      if decision.of then at[decision.of] = i end
    end
  end
  return found, forms
end

-- FIRST as one decision about all MEMBERS.
local function as_one(first, members)
  local whole = {}
  for name, value in pairs(first) do whole[name] = value end
  whole.members = members
  return whole
end

-- What a request gets that goes on.
function Limiter:go_on(visit, delay_ms)
  local found, forms = shown(visit)
  local tightest
  for _, one in ipairs(found) do
    if not tightest or decisions.is_tighter(one, tightest) then tightest = one end
  end
  visit.decision = tightest
  local headers = tightest and http.headers(as_one(tightest, found), forms, self.reset, os.time() * 1000) or {}
  return { decision = tightest, headers = headers, delay_s = (delay_ms or 0) / 1000 }
end

-- What a request gets that ends here: 429, or 503 without a DECISION.
function Limiter:refuse(visit, accept, decision, respond)
  local found, forms = shown(visit)
  visit.decision = decision or visit.decision
  local now_ms = os.time() * 1000
  local status, headers, body = http.denial(decision and as_one(decision, found), accept, forms, self.reset, now_ms)
  if not decision and found[1] then
    for i, field in ipairs(http.headers(as_one(found[1], found), forms, self.reset, now_ms)) do table.insert(headers, i, field) end
  end
  if respond then table.remove(headers) end -- the Content-Type, of the body that is not used
  return { decision = decision, status = status, headers = headers, body = body, respond = respond }
end

-- What a request gets under LIMITS (one, or a list of which all or none is charged), at one place of its VISIT: {headers} to go on,
-- with headers for the answer; {status, headers, body} to end it. `decision` is there where somebody decided, of several limits
-- that which denied or has least left; `delay_s` where the daemon asks to wait. A mistake in the configuration raises.
function Limiter:judge(limits, request, accept, visit)
  if type(limits) == "string" then limits = { policy = limits } end
  if #limits == 0 then limits = { limits } end
  if not self.is_enabled then return { headers = {} } end

  local asked, limit_at = self:questions_of(limits, request, visit)
  if not asked then
    give_back(visit)
    return self:refuse(visit, accept)
  end
  if #asked == 0 then return self:go_on(visit) end

  local members = {}
  for i, one in ipairs(asked) do members[i] = msgpack.array { one.policy, one.key, one.cost } end
  local whole, failure = self:decide(#members == 1 and "check" or "check_all", members)
  if failure and failure.kind == "refused" then error("ratelimitd: " .. failure.message, 0) end
  local is_refused
  if failure then is_refused = self:is_denied(failure, limit_at) else is_refused = not whole.allowed end
  if is_refused then give_back(visit) end

  local denying = 1
  for i, one in ipairs(asked) do
    one.decision, one.is_returned = whole and (whole.members and whole.members[i] or whole), is_refused
    if is_refused and whole and whole.members and not one.decision.allowed and asked[denying].decision.allowed then denying = i end
    visit.asked[#visit.asked + 1] = one
  end
  if not is_refused then return self:go_on(visit, whole and whole.delay_ms) end
  return self:refuse(visit, accept, whole, whole and limit_at[denying].respond)
end

-- The policies among NAMES that count denials, which a remembered denial does not reach.
function M.counting_denials(policies, is_wanted)
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
  local policies, failure = self.client:policies()
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

  local counting = self.denials and M.counting_denials(policies, wanted) or {}
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
