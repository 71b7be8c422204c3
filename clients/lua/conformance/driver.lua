-- driver.lua: the commands of the conformance suite, in a worker of nginx. driver.py passes each of them in a request of its
-- own; a command and its answer are MessagePack.

local http = require "ratelimitd.http"
local limit_of = require "ratelimitd.limit"
local limiter = require "ratelimitd.limiter"
local msgpack = require "ratelimitd.msgpack"
local nginx = require "ratelimitd.nginx"
local testing = require "ratelimitd.testing"

local clients, fakes = {}, {}
local LEFT_OUT = { refunded = 0, charged = 0, ended = false }

local function new(c)
  local one = nginx.new { socket = c.socket, timeout = c.timeout_ms, service = c.service, remember_denials = c.remember_denials_ms }
  one.platform = setmetatable({ log = function(text) table.insert(ngx.ctx.logged, text) end }, { __index = one.platform })
  return one
end

local function shown(decision)
  local answer = {}
  for name, value in pairs(LEFT_OUT) do answer[name] = value end
  for name, value in pairs(decision) do
    if type(name) == "string" then answer[name] = value end
  end
  if decision.members then
    answer.members = msgpack.array {}
    for i, member in ipairs(decision.members) do answer.members[i] = shown(member) end
  end
  return answer
end

local function failed(failure)
  return { status = failure.kind, code = failure.code, maybe_charged = failure.maybe_charged, message = failure.message }
end

local function decided(c, method, items)
  local members = {}
  for i, item in ipairs(items) do
    members[i] = msgpack.array { item[1], limiter.shorten(item[2], nginx.request), item[3] or 1 }
  end
  local decision, failure = clients[c.client]:decide(method, members, c.timeout_ms and c.timeout_ms / 1000)
  return failure and failed(failure) or { decision = shown(decision) }
end

-- The options of a limit; {"function": true} is a function.
local function options_of(given)
  local options = {}
  for name, value in pairs(given) do
    options[name] = type(value) == "table" and function() return nil end or value
  end
  return options
end

local COMMANDS = {
  open = function(c)
    clients[c.client], fakes[c.client] = new(c), nil
    return {}
  end,
  close = function(c) -- a pool has no end of its own: its connections are taken out until one is new
    local one = not fakes[c.client] and clients[c.client]
    for _ = 1, 65 do
      local connection = one and one.platform.connect(one.client.path, 1, one.client.pool.name)
      if not connection then break end
      connection.close()
      if connection.is_new then break end
    end
    return {}
  end,
  check = function(c) return decided(c, "check", { { c.policy, c.key, c.cost } }) end,
  check_all = function(c) return decided(c, "check_all", c.items) end,
  stats = function(c) return { counters = clients[c.client]:stats(), pending = 0 } end,
  fake = function(c)
    clients[c.client] = new(c)
    fakes[c.client] = testing.fake(clients[c.client])
    return {}
  end,
  fake_allow_all = function(c) fakes[c.client]:allow_all() return {} end,
  fake_deny = function(c) fakes[c.client]:deny(c.policy, c.retry_after_ms) return {} end,
  fake_unavailable = function(c) fakes[c.client]:unavailable(c.kind) return {} end,
  fake_calls = function(c)
    local calls = {}
    for i, call in ipairs(fakes[c.client].calls) do calls[i] = msgpack.array(call) end
    return { calls = msgpack.array(calls) }
  end,
  block_ms = function(c)
    local stop = ngx.now() + c.ms / 1000
    while ngx.now() < stop do ngx.update_time() end
    return {}
  end,
  ip_key = function(c)
    local key, message = http.ip_key(c.peer, c.prefix)
    return key and { key = key } or { status = "argument", message = message, maybe_charged = false }
  end,
  verify = function(c)
    local one = clients[c.client]
    local verify = fakes[c.client] and one.verify or limiter.Limiter.verify -- nginx' own answers only in its log
    local missing, failure = verify(one, c.policies, c.inline)
    if failure then return failed(failure) end
    if #missing == 0 then return {} end
    return { status = "refused", code = "UNKNOWN_POLICY", missing = msgpack.array(missing), message = "no policy " .. table.concat(missing, ", "), maybe_charged = false }
  end,
  join_key = function(c) return { key = http.join(c.parts) } end,
  parse_limit = function(c) return { settings = limit_of.parse_limit(c.text) } end,
  limit = function(c)
    limit_of.check(options_of(c.options))
    return {}
  end,
  endpoint_key = function(c)
    local limit = options_of(c.limit)
    limit.endpoint, limit.key = c.endpoint, function() return c.key end
    c.service = c.service or ""
    return { key = new(c):questions_of({ limit }, nginx.request, { asked = {} })[1].key }
  end,
  service_name = function(c)
    return { service = limiter.service_of(c.option, function(variable) return c.env[variable] end) or c.own or "" }
  end,
  headers = function(c)
    local fields, status, body = nil, nil, nil
    if c.decision and c.decision.allowed then fields = http.headers(c.decision, c.mode, c.reset, c.now_ms)
    else status, fields, body = http.denial(c.decision, c.accept, c.mode, c.reset, c.now_ms) end
    for i, field in ipairs(fields) do fields[i] = msgpack.array(field) end
    return { http_status = status, headers = msgpack.array(fields), body = body }
  end,
}

local function run()
  ngx.req.read_body()
  local body, at = ngx.req.get_body_data(), 0
  local command = msgpack.unpack(function(n)
    at = at + n
    return body:sub(at - n + 1, at)
  end)

  ngx.update_time()
  local started = ngx.now()
  ngx.ctx.logged = msgpack.array {}
  local work = COMMANDS[command["do"]]
  local is_done, answer = pcall(work or function() return { status = "unknown" } end, command)
  if not is_done then
    local is_ours = type(answer) == "string" and answer:find("^ratelimitd: ")
    answer = { status = is_ours and "argument" or "bug", message = tostring(answer), maybe_charged = false }
  end
  ngx.update_time()
  answer.status, answer.logged = answer.status or "ok", ngx.ctx.logged
  answer.ms_1000 = math.floor((ngx.now() - started) * 1000000)
  ngx.print(msgpack.pack(answer))
end

return { run = run }
