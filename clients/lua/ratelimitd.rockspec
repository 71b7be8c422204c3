-- For LuaRocks. A rock's file has its version in its name: `./dev release` copies this one.
rockspec_format = "3.0"
package = "ratelimitd"
version = "0.1.0-1"
source = {
   url = "git+https://placeholder.invalid/ratelimitd.git",     -- until there is an address
   dir = "ratelimitd/clients/lua",
}
description = {
   summary = "Client for ratelimitd, a rate-limit sidecar: nginx (OpenResty) and HAProxy",
   homepage = "https://placeholder.invalid/ratelimitd",
   license = "MIT",
}
dependencies = {"lua >= 5.1"}
build = {
   type = "builtin",
   modules = {
      ["ratelimitd"] = "ratelimitd.lua",
      ["ratelimitd.client"] = "ratelimitd/client.lua",
      ["ratelimitd.decision"] = "ratelimitd/decision.lua",
      ["ratelimitd.denials"] = "ratelimitd/denials.lua",
      ["ratelimitd.haproxy"] = "ratelimitd/haproxy.lua",
      ["ratelimitd.http"] = "ratelimitd/http.lua",
      ["ratelimitd.limit"] = "ratelimitd/limit.lua",
      ["ratelimitd.limiter"] = "ratelimitd/limiter.lua",
      ["ratelimitd.msgpack"] = "ratelimitd/msgpack.lua",
      ["ratelimitd.nginx"] = "ratelimitd/nginx.lua",
      ["ratelimitd.testing"] = "ratelimitd/testing.lua",
   },
   copy_directories = {},
}
