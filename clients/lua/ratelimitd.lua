-- ratelimitd: rate limits for nginx and HAProxy, decided by ratelimitd. See README.md.

if ngx then return require "ratelimitd.nginx" end
if core and core.register_action then return require "ratelimitd.haproxy" end
error("ratelimitd: this module runs in nginx (lua-nginx-module, OpenResty) and in HAProxy", 0)
