-- ratelimitd.nginx: the limiter in nginx with its Lua module, and in OpenResty.
--
--   init_by_lua_block { limiter = require("ratelimitd").new() }
--   location /api/ { access_by_lua_block { limiter:limit{ policy = "web" } } proxy_pass http://app; }

local limiter = require "ratelimitd.limiter"

local POOL_SIZE, POOL_IDLE_MS = 64, 60000

local platform = { OWN_SERVICE = "for the server_name of the server where they stand" }

function platform.now()
  ngx.update_time()
  return ngx.now()
end

function platform.log(text) ngx.log(ngx.ERR, text) end
function platform.notice(text) ngx.log(ngx.NOTICE, text) end

function platform.shared_dict(name)
  return ngx.shared[name] or error(("ratelimitd: there is no lua_shared_dict %s"):format(name), 0)
end

function platform.connect(path, timeout_s, pool)
  local socket = ngx.socket.tcp()
  local timeout_ms = math.ceil(timeout_s * 1000)
  socket:settimeouts(timeout_ms, timeout_ms, timeout_ms)
  local is_open, message = socket:connect("unix:" .. path, { pool = pool, pool_size = POOL_SIZE })
  if not is_open then return nil, message end

  local connection = { calls = socket:getreusedtimes() }
  connection.is_new = connection.calls == 0
  function connection.send(bytes) return socket:send(bytes) end
  function connection.receive(n, left_s)
    socket:settimeouts(nil, nil, math.max(1, math.ceil(left_s * 1000)))
    return socket:receive(n)
  end
  function connection.keep() socket:setkeepalive(POOL_IDLE_MS, POOL_SIZE) end
  function connection.close() socket:close() end
  return connection
end

-- What a word of a key stands for. Any other word is a variable of nginx: "remote_user", "http_x_tenant", "arg_user".
local VARIABLES = { ip = "remote_addr", uri = "uri", host = "host", method = "request_method" }

local request = {}
request.__index = request

-- All lines of a header, joined as RFC 9110 joins them. Not $http_NAME: before nginx 1.23 that is the first line only. 0: however
-- many lines there are; large_client_header_buffers bounds their bytes.
local function header(name)
  local value = ngx.req.get_headers(0)[name]
  return type(value) == "table" and table.concat(value, ", ") or value
end

function request:value(word)
  local name = word:match("^header:(.+)$")
  local value
  if name then value = header(name) else value = ngx.var[VARIABLES[word] or word] end
  if value == "" then return nil end
  return value
end

-- For the functions of a limit: the same, and "ip" as in a key.
function request:part(word) return self.limiter:part(word, self) end

function request:own_service() return ngx.var.server_name end

-- OpenSSL's, which nginx is linked with.
local digest
function request:sha256_hex(text)
  local ffi = require "ffi"
  if not digest then
    ffi.cdef "unsigned char *SHA256(const unsigned char *data, size_t count, unsigned char *digest);"
    digest = ffi.new("unsigned char[32]")
  end
  ffi.C.SHA256(text, #text, digest)
  return (ffi.string(digest, 32):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

function request:is_preflight()
  return ngx.req.get_method() == "OPTIONS" and ngx.var.http_access_control_request_method ~= nil
end

local Limiter = setmetatable({}, { __index = limiter.Limiter })
Limiter.__index = Limiter

-- A list that is there already, from another limiter of this request, goes on.
local LISTS = { ["RateLimit"] = true, ["RateLimit-Policy"] = true }

local function set_headers(fields)
  local replacing = ngx.ctx.ratelimit_fields or {}
  ngx.ctx.ratelimit_fields = replacing
  for _, field in ipairs(fields) do
    local name, value = field[1], field[2]
    local earlier = LISTS[name] and ngx.header[name]
    ngx.header[name] = earlier and earlier .. ", " .. value or value
    if not LISTS[name] and name ~= "Content-Type" then replacing[name] = value end
  end
end

-- In header_filter_by_lua: Retry-After and the X-RateLimit fields of a limit replace those that the application has set.
function Limiter:header_filter()
  for name, value in pairs(ngx.ctx.ratelimit_fields or {}) do ngx.header[name] = value end
end

-- The variables that a configuration may declare, for its log or for the application: set $ratelimit_remaining "";
local DECISION_VARIABLES = { "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "source", "of" }

local function set_variable(name, value) ngx.var[name] = value end

local function text_of(value) return value == nil and "" or tostring(value) end

-- Of several limits of a request, the one that denied or has least left.
local function show_decision(decision)
  local earlier = ngx.ctx.ratelimit
  if earlier and decision.allowed and earlier.remaining <= decision.remaining then return end
  ngx.ctx.ratelimit = decision
  for _, field in ipairs(DECISION_VARIABLES) do
    pcall(set_variable, "ratelimit_" .. field, text_of(decision[field])) -- raises where it is not declared
  end
end

-- Limit the present request, in access_by_lua: LIMITS is one limit, or a list of limits that are charged together or not at
-- all. Returns the decision (nil where no decision was made) when the request goes on; ends it otherwise.
function Limiter:limit(limits)
  local is_judged, outcome = pcall(self.judge, self, limits, setmetatable({ limiter = self }, request), ngx.var.http_accept)
  if not is_judged then
    self:report_mistake(outcome)
    return ngx.exit(500)
  end

  if outcome.decision then show_decision(outcome.decision) end
  set_headers(outcome.headers)
  if outcome.respond then return outcome.respond(outcome.decision) end
  if outcome.status then
    ngx.status = outcome.status
    ngx.header["Content-Length"] = #outcome.body
    ngx.print(outcome.body)
    return ngx.exit(outcome.status)
  end
  if outcome.delay_s and outcome.delay_s > 0 then ngx.sleep(outcome.delay_s) end
  return outcome.decision
end

-- In init_worker_by_lua: log the policies that the daemon does not have.
function Limiter:verify(names, inline)
  ngx.timer.at(0, function() limiter.Limiter.verify(self, names, inline) end)
end

local M = { request = request }

function M.new(options) return setmetatable(limiter.new(platform, options), Limiter) end

return M
