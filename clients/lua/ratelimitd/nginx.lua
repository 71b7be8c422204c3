-- ratelimitd.nginx: the limiter in nginx with its Lua module, and in OpenResty.
--
--   init_by_lua_block { limiter = require("ratelimitd").new() }
--   location /api/ { rewrite_by_lua_block { limiter:limit{ policy = "web" } } proxy_pass http://app; }

local limiter = require "ratelimitd.limiter"

local POOL_SIZE, POOL_IDLE_MS = 64, 60000

local platform = { OWN_SERVICE = "for the server_name of the server where they stand" }

function platform.now()
  ngx.update_time()
  return ngx.now()
end

function platform.log(text) ngx.log(ngx.ERR, text) end
function platform.warn(text) ngx.log(ngx.WARN, text) end
function platform.notice(text) ngx.log(ngx.NOTICE, text) end
function platform.is_variable(name) return name:find("^[%w_]+$") ~= nil end

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

-- What a word of a key stands for. "var:NAME" is any variable of nginx: "var:remote_user", "var:arg_user".
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
  local kind, name = word:match("^(%a+):(.+)$")
  local value
  if kind == "header" then value = header(name) else value = ngx.var[name or VARIABLES[word]] end
  if value == "" then return nil end
  return value
end

-- For the functions of a limit: the same, and "ip" as in a key.
function request:part(word) return self.limiter:part(word, self) end
function request.composite(_, ...) return limiter.composite(...) end

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
  local variable = ngx.var
  return ngx.req.get_method() == "OPTIONS" and variable.http_origin ~= nil and variable.http_access_control_request_method ~= nil
end

local Limiter = setmetatable({}, { __index = limiter.Limiter })
Limiter.__index = Limiter

-- The visits of this worker, by connection and its request number: ngx.ctx is emptied when a request is redirected inside the
-- server. What ngx.ctx had stays until the end of the request, so nothing else holds a visit, and it goes with its request.
local visits = setmetatable({}, { __mode = "v" })

-- A subrequest has one of its own.
local function visit_here()
  local context = ngx.ctx
  if context.ratelimit_visit then return context.ratelimit_visit end
  local id = not ngx.is_subrequest and ngx.var.connection .. " " .. ngx.var.connection_requests
  local visit = id and visits[id] or { asked = {}, fields = {}, lists = {} }
  if id then visits[id] = visit end
  context.ratelimit_visit = visit
  return visit
end

-- Lists, which go on with what somebody else has put there.
local LISTS = { ["RateLimit"] = true, ["RateLimit-Policy"] = true }

local function set_headers(visit, fields)
  for _, field in ipairs(fields) do
    local name, value = field[1], field[2]
    if LISTS[name] then
      if visit.lists[name] == nil then visit.lists[name] = ngx.header[name] or "" end
      local others = visit.lists[name]
      if type(others) == "table" then others = table.concat(others, ", ") end
      ngx.header[name] = others ~= "" and others .. ", " .. value or value
    else
      ngx.header[name] = value
      if name ~= "Content-Type" then visit.fields[name] = value end
    end
  end
end

-- The variables that a configuration may declare, for its log or for the application: set $ratelimit_remaining "";
local DECISION_VARIABLES = { "allowed", "limit", "remaining", "retry_after_ms", "reset_after_ms", "source", "of" }

local function set_variable(name, value) ngx.var[name] = value end

local function text_of(value) return value == nil and "" or tostring(value) end

-- Of several limits of a request, the one that denied or has least left.
local function show_decision(visit)
  local decision = visit.decision
  if not decision then return end
  ngx.ctx.ratelimit = decision
  for _, field in ipairs(DECISION_VARIABLES) do
    pcall(set_variable, "ratelimit_" .. field, text_of(decision[field])) -- raises where it is not declared
  end
end

-- The decision about the present request, nil where none was made; also after a redirect inside the server, unlike ngx.ctx.ratelimit.
function Limiter:decision() return visit_here().decision end

-- In header_filter_by_lua: Retry-After and the X-RateLimit fields of a limit replace those that the application has set. After a
-- redirect inside the server, the variables have the decision again.
function Limiter:header_filter()
  local visit = visit_here()
  for name, value in pairs(visit.fields) do ngx.header[name] = value end
  show_decision(visit)
end

local function sleep(seconds) ngx.sleep(seconds) end

-- Ends a request that LIMITS refuse. Returns the decision (nil where no decision was made) when it goes on.
local function enforce(self, limits)
  local visit = visit_here()
  local is_judged, outcome = pcall(self.judge, self, limits, setmetatable({ limiter = self }, request), ngx.var.http_accept, visit)
  if not is_judged then
    self:report_mistake(outcome)
    return ngx.exit(500)
  end

  show_decision(visit)
  set_headers(visit, outcome.headers)
  if outcome.respond then
    outcome.respond(outcome.decision)
    return ngx.exit(ngx.headers_sent and ngx.HTTP_OK or outcome.status) -- whatever it has done, the request does not go on
  end
  if outcome.status then
    ngx.status = outcome.status
    ngx.header["Content-Length"] = #outcome.body
    ngx.print(outcome.body)
    return ngx.exit(outcome.status)
  end
  if outcome.delay_s then limiter.sleep_in_pieces(outcome.delay_s, sleep) end
  return outcome.decision
end

-- Limit the present request, in rewrite_by_lua: LIMITS is one limit, or a list of limits that are charged together or not at
-- all. Returns the decision (nil where no decision was made) when the request goes on; ends it otherwise.
--
-- In access_by_lua it never returns: a block that ends by itself would grant access under `satisfy any`, without a password.
function Limiter:limit(limits)
  local decision = enforce(self, limits)
  if ngx.get_phase() == "access" then return ngx.exit(ngx.DECLINED) end
  return decision
end

-- In init_worker_by_lua: log the policies that the daemon does not have.
function Limiter:verify(names, inline)
  ngx.timer.at(0, function() limiter.Limiter.verify(self, names, inline) end)
end

local M = { request = request, NOT_LIMITED = limiter.NOT_LIMITED }

-- For `skip`: true for the preflights of browsers.
function M.is_preflight(one) return one:is_preflight() end
Limiter.is_preflight = M.is_preflight

function M.new(options) return setmetatable(limiter.new(platform, options), Limiter) end

return M
