-- The limits of haproxy.cfg.

local limiter = require("ratelimitd").new()

local LIMITS = {
  limit_ok = { policy = "web" },
  limit_down = { policy = "web", on_error = "deny" },
  limit_inline = { limit = "2/5s", name = "inline" },
  limit_two = { { policy = "web" }, { policy = "tenant", key = "header:X-Tenant" } },
  limit_cost = { policy = "budget", cost = function(request) return tonumber(request.txn.f:url_param("n")) end },
  limit_skip = { policy = "login", skip = function(request) return request.txn.sf:req_hdr("x-probe") == "yes" end },
  limit_login = { policy = "login", on_error = "deny" },
}

for name, limits in pairs(LIMITS) do
  core.register_action(name, { "http-req" }, function(txn) limiter:limit(txn, limits) end)
end
