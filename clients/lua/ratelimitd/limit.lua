-- ratelimitd.limit: a limit as its author wrote it. What is wrong is refused, with the names that are right.

local M = {}

-- What a function of a limit gives in place of a key or a policy: this request is not limited.
M.NOT_LIMITED = setmetatable({}, { __tostring = function() return "NOT_LIMITED" end })

local COUNT_MAX = 2 ^ 53 - 1

local function set_of(words)
  local set = {}
  for word in words:gmatch("%S+") do set[word] = true end
  return set
end

-- The types that each option may have, as sets.
function M.known(options)
  local known = {}
  for name, types in pairs(options) do known[name] = set_of(types) end
  return known
end

local function sorted_names(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local OPTIONS = {
  policy = "string function", limit = "number function", window = "string function", name = "string", endpoint = "string",
  key = "string function", cost = "number function", skip = "function", on_error = "string function", headers = "string",
  respond = "function", enabled = "boolean",
}

-- The other settings of an inline policy of one limit, as in ratelimitd.yaml(5).
local SETTINGS = {
  "algorithm", "compat", "key_prefix", "timezone", "week_start", "anchor", "slot_ttl", "burst", "max_wait", "start", "count_denied", "lease",
  "counts", "phase", "on_failure", "deadline", "idempotency_window", "debt", "shadow", "local_share", "merge_back", "on_change", "unlimited", "warn_at",
  "key_format", "id", "penalty",
}
for _, name in ipairs(SETTINGS) do OPTIONS[name] = "string number boolean" end
OPTIONS.penalty = "table"
OPTIONS = M.known(OPTIONS)

local FORMS = set_of "ietf legacy both none"
local RESETS = set_of "delta epoch"
local UNITS = { ms = "ms", s = "s", m = "m", h = "h", d = "d", second = "s", minute = "m", hour = "h", day = "d" }
local WINDOW_UNITS = set_of "us ms s m h d"

-- The words of a key.
local WORDS = set_of "ip uri host method"
local WORDS_SHOWN = "ip, uri, host, method, header:NAME or var:NAME"
local HEADER_NAME = "^[%w!#$%%&'*+.^_`~-]+$"

-- Settings that do not go with an id.
local NO_ID_WITH = set_of "burst max_wait lease on_change merge_back debt candidate"
local ID_BYTES_MAX = 256

local function refuse(text, ...) error("ratelimitd: " .. text:format(...), 0) end

-- Raises where OPTIONS has a name that KNOWN does not have, or a value of another type.
function M.refuse_mistakes(options, known, where)
  for name, value in pairs(options) do
    local types = known[name]
    if not types then
      refuse("%s does not know the option %q; it has %s", where, tostring(name), table.concat(sorted_names(known), ", "))
    end
    if not types[type(value)] then
      refuse("%s of %s is a %s; write a %s", name, where, type(value), table.concat(sorted_names(types), " or a "))
    end
  end
end

function M.checked_on_error(value)
  if value == nil or value == "allow" or value == "deny" or type(value) == "function" then return value end
  refuse('on_error is "allow", "deny" or a function, not %q', tostring(value))
end

function M.checked_form(value)
  if value == nil or FORMS[value] then return value end
  refuse('headers is "ietf", "legacy", "both" or "none", not %q', tostring(value))
end

function M.checked_reset(value)
  if value == nil or RESETS[value] then return value end
  refuse('reset is "delta" or "epoch", not %q', tostring(value))
end

-- Is it written like the name of a policy?
local function is_name(value)
  return type(value) == "string" and #value <= 64 and value:find("^[%w._-]+$") ~= nil
end

function M.checked_name(value)
  if value == nil or is_name(value) then return value end
  refuse("the name of a limit has 1 to 64 letters, digits, dots, dashes and underscores: not %q", tostring(value))
end

local function checked_count(value, what)
  if type(value) == "number" and value >= 0 and value <= COUNT_MAX and value == math.floor(value) then return value end
  refuse("%s is not a whole number from 0: %s", what, tostring(value))
end

local function checked_window(value)
  local count, unit = tostring(value):match("^(%d+)(%a+)$")
  if WINDOW_UNITS[unit] and tonumber(count) > 0 then return value end
  refuse("window is not a time such as 500ms, 5s, 10m, 1h or 1d: %s", tostring(value))
end

-- "10/5s" or "5000/day": the settings that are sent.
function M.parse_limit(text)
  local count, length, unit = text:match("^%s*(%d+)%s*/%s*(%d*)%s*(%a+)%s*$")
  unit = UNITS[unit] or unit and UNITS[unit:match("^(%a%a+)s$")]
  if not unit or length:match("^0") then
    refuse('%q is neither the name of a policy nor a limit such as "10/5s" or "5000/day"', text)
  end
  local limit = checked_count(tonumber(count), "the limit of " .. text)
  return { algorithm = "fixed_window", limit = limit, window = (length == "" and "1" or length) .. unit, start = "first_hit" }
end

-- The words of a key such as "ip|header:X-Tenant". IS_VARIABLE: can this be the name of a variable here?
function M.words_of(key, is_variable)
  local words = {}
  for word in (key .. "|"):gmatch("([^|]*)|") do
    local kind, name = word:match("^(%l+):(.*)$")
    if not (WORDS[word] or kind == "header" and name:find(HEADER_NAME) or kind == "var" and is_variable(name)) then
      refuse("%q is no part of a key; write %s, joined by | without blanks", word, WORDS_SHOWN)
    end
    words[#words + 1] = word
  end
  return words
end

local function policy_in(text) return is_name(text) and text or M.parse_limit(text) end

-- Raises where a limit is wrong, as far as its functions do not matter.
function M.check(limit)
  M.refuse_mistakes(limit, OPTIONS, "limit")
  M.checked_on_error(limit.on_error)
  M.checked_form(limit.headers)
  M.checked_name(limit.name)
  if limit.endpoint == "" then refuse("the endpoint of a limit is empty") end
  if type(limit.cost) == "number" then checked_count(limit.cost, "cost") end
  if type(limit.limit) == "number" then checked_count(limit.limit, "limit") end
  if type(limit.window) == "string" and limit.algorithm ~= "calendar_window" then checked_window(limit.window) end

  local has_settings = limit.limit ~= nil or limit.window ~= nil
  for _, name in ipairs(SETTINGS) do has_settings = has_settings or limit[name] ~= nil end
  if limit.policy ~= nil and has_settings then refuse("a limit has a policy, or settings of its own, not both") end
  if limit.policy == nil and not has_settings then
    refuse('a limit needs policy = "NAME", policy = "10/5s", or limit = 10 and window = "5s"')
  end
  if limit.limit ~= nil and limit.window == nil and limit.algorithm ~= "concurrency" then
    refuse('limit needs a window: window = "5s"')
  end
  local policy = limit.policy
  if type(policy) == "string" then policy = policy_in(policy) end
  if limit.name and limit.policy and type(policy) ~= "table" then
    refuse("name is for a limit that is written here; a policy of the configuration has one")
  end
end

-- The value of an option that may be a function of the request.
local function value_of(option, request)
  if type(option) == "function" then return option(request) end
  return option
end

-- The policy of a limit for this request: a name, or the settings of an inline one; NOT_LIMITED; nil: it has none.
function M.policy_of(limit, request)
  if limit.policy ~= nil then
    local policy = value_of(limit.policy, request)
    if policy == nil or policy == "" then return nil end
    if policy == M.NOT_LIMITED then return policy end
    if type(policy) ~= "string" then refuse("policy gave a %s, not the name of a policy or a limit", type(policy)) end
    policy = policy_in(policy)
    if type(policy) == "table" then policy.name = limit.name end
    return policy
  end

  local settings = { name = limit.name, limit = value_of(limit.limit, request), window = value_of(limit.window, request) }
  for _, name in ipairs(SETTINGS) do settings[name] = limit[name] end
  if settings.limit ~= nil then checked_count(settings.limit, "limit") end
  if settings.window ~= nil and settings.algorithm ~= "calendar_window" then checked_window(settings.window) end
  if not settings.algorithm and not settings.compat then
    settings.algorithm, settings.start = "fixed_window", settings.start or "first_hit"
  end
  return settings
end

-- Is the limit of these settings another one in each request?
function M.is_moving(limit) return type(limit.limit) == "function" or type(limit.policy) == "function" end

-- SETTINGS with the id that lets their limit move: the name of their endpoint; of the NUMBERth such limit with its number.
function M.with_id(settings, endpoint, number, sha256_hex)
  for name in pairs(settings) do
    if NO_ID_WITH[name] or name == "id" then return settings end
  end
  local is_log_of_denials = settings.algorithm == "sliding_log" and settings.count_denied
  if settings.algorithm == "leaky_bucket" or is_log_of_denials then return settings end
  local id = number == 1 and endpoint or endpoint .. "#" .. number
  local is_long = #id > ID_BYTES_MAX or id:find("%c")
  settings.id = is_long and id:sub(1, 64):gsub("%c", "?") .. "#" .. sha256_hex(id) or id
  return settings
end

function M.cost_of(limit, request)
  if limit.cost == nil then return 1 end
  return checked_count(value_of(limit.cost, request), "cost")
end

return M
