-- The limits of the table of attacks in HAProxy, with the limiter of limits.lua. Each action is for the path that attacks.cfg asks it
-- for.

local ratelimitd = require("ratelimitd")

local function field(name) return function(request)
  local values = request.txn.http:req_get_headers()[name]
  return values and values[0]
end end

-- By the user; without one by the address; an empty name is no key.
local function by_user(user_of)
  return function(request)
    local user = user_of(request)
    if user then return request:composite("u", user) end
    return request:composite("i", request:part("ip"))
  end
end

local function exempt(request)
  return request.txn.sf:req_hdr("x-exempt") == "yes" and limiter.NOT_LIMITED or request:part("ip")
end

local LIMITS = {
  any = { policy = "never", on_error = "deny" },
  preflight = { policy = "never", skip = ratelimitd.is_preflight },
  key = { policy = "never", key = "header:X-Api-Key", endpoint = "GET /attack/key" },
  ["key-allowed"] = { policy = "never", key = "header:X-Api-Key", endpoint = "GET /attack/key-allowed", on_error = "allow" },
  ["key-said"] = { policy = "never", key = "header:X-Api-Key", endpoint = "GET /attack/key-said" },
  json = { policy = "never", key = "var:txn.json_user" },
  parts = { policy = "never", key = "ip|header:X-Api-Key" },
  param = { policy = "never", key = "var:txn.param_user" },
  exempt = { policy = "never", key = exempt },
  user = { policy = "pair", key = by_user(field("x-user")) },
  ["user-broken"] = { policy = "never", key = by_user(function(request) return request.session.user end) },
  ["late-hook"] = { policy = "pair", key = "var:txn.user" },
  ["late-guard"] = { policy = "pair", key = "var:txn.user" },
  forwarded = { policy = "pair" },
  raw = { policy = "never" },
  web = { policy = "web" },
  ["outer/twice"] = { policy = "web" },
  ["outer/cost"] = { policy = "web", cost = 5 },
  ["outer/inner"] = { policy = "pair" },
  ["outer/key"] = { policy = "never", key = "header:X-Api-Key" },
  strict = { policy = "strict" },
  ["strict/inner"] = { policy = "never" },
  ["names/both"] = { policy = "2/1m", endpoint = "GET,POST /attack/names/both" },
  ["names/item"] = { policy = "2/1m", endpoint = "GET /attack/names/item/{id}" },
  ["names/shared"] = { policy = "2/1m", endpoint = "shared" },
  moves = {
    limit = function(request) return tonumber(request.txn.f:url_param("limit")) end, window = "1m",
    endpoint = "GET /attack/moves", key = function() return "moves" end,
  },
}

local function register(name, limits)
  core.register_action("attack_" .. name:gsub("[-/]", "_"), { "http-req" }, function(txn) limiter:limit(txn, limits) end)
end

for name, limits in pairs(LIMITS) do register(name, limits) end

local function crud(path) register("names/" .. path, { policy = "2/1m", endpoint = "GET /attack/names/" .. path }) end
for _, path in ipairs { "factory/a", "factory/b", "lambda/a", "lambda/b", "mounted-a/x", "mounted-b/x" } do crud(path) end
register("names/method/get", { policy = "2/1m", endpoint = "GET /attack/names/method" })
register("names/method/post", { policy = "2/1m", endpoint = "POST /attack/names/method" })

-- Mistakes, which haproxy.cfg asks for in the tests of them.
register("misspelt", { policy = "never", key = "misspelt" })
core.register_action("attack_misplaced", { "http-res" }, function(txn) limiter:limit(txn, { policy = "never" }) end)
