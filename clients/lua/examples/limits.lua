-- The limits of haproxy.cfg.

limiter = require("ratelimitd").new{ timeout = tonumber(os.getenv("TIMEOUT_MS")) }

local function tenant(request)
  local name = request.txn.sf:req_hdr("x-tenant")
  return name ~= "" and name or limiter.NOT_LIMITED
end
local function cost(request) return tonumber(request.txn.f:url_param("n")) end
local function is_gold(request) return request.txn.sf:req_hdr("x-plan") == "gold" end

-- "-" without one: a body that is no form.
local function user_of_form(request)
  local user = request.txn.sf:req_body_param("user")
  return user ~= "" and user or "-"
end

local LIMITS = {
  limit_ok = { policy = "web" },
  limit_down = { policy = "web", on_error = "deny" },
  limit_inline = { limit = 2, window = "5s", endpoint = "GET /inline" },
  limit_two = { { policy = "web" }, { policy = "tenant", key = tenant } },
  limit_cost = { policy = "budget", cost = cost },
  limit_skip = { policy = "login", skip = function(request) return request.txn.sf:req_hdr("x-probe") == "yes" end },
  limit_login = {
    policy = "login", on_error = "deny",
    key = function(request) return { user_of_form(request), request:part("ip") } end,
  },
  limit_plan = {
    name = "plan",
    limit = function(request) return is_gold(request) and 3 or 1 end,
    window = function(request) return is_gold(request) and "30s" or "60s" end,
  },
  limit_choose = {
    policy = function(request)
      local policy = request.txn.f:url_param("policy")
      return policy == "free" and limiter.NOT_LIMITED or policy
    end,
  },
  limit_own = {
    policy = "budget", headers = "both", cost = cost,
    respond = function(txn)
      local reply = txn:reply { status = 418, reason = "I'm a teapot", body = "slow down\n" }
      reply:add_header("Content-Type", "text/plain; charset=utf-8")
      reply:add_header("Retry-After", "99")
      reply:add_header("X-RateLimit-Limit", "99")
      return reply
    end,
  },
}

for name, limits in pairs(LIMITS) do
  core.register_action(name, { "http-req" }, function(txn) limiter:limit(txn, limits) end)
end
