-- driver.lua: the commands of the conformance suite, in a worker of nginx. driver.py passes each of them in a request of its
-- own; a command and its answer are MessagePack.

local client = require "ratelimitd.client"
local http = require "ratelimitd.http"
local limiter = require "ratelimitd.limiter"
local msgpack = require "ratelimitd.msgpack"
local testing = require "ratelimitd.testing"
local new = require("ratelimitd").new

local clients, fakes = {}, {}
local LEFT_OUT = { delay_ms = 0, shadow_denied = false, refunded = 0, charged = 0, ended = false }

local function shown(decision, cost, costs)
  local answer = { granted = decision.allowed and cost or 0 }
  for name, value in pairs(LEFT_OUT) do answer[name] = value end
  for name, value in pairs(decision) do answer[name] = value end
  if decision.members then
    answer.members = msgpack.array {}
    for i, member in ipairs(decision.members) do answer.members[i] = shown(member, costs[i]) end
  end
  return answer
end

local function called(c, method, params, cost, costs)
  local one = clients[c.client].client
  local result, failure = one:call(method, params, c.timeout_ms and c.timeout_ms / 1000)
  if not failure and not client.is_answer(result, costs and #costs or 1) then
    failure = { kind = "protocol", message = "an answer that is not a decision", maybe_charged = true }
  end
  if not failure then return { decision = shown(result, cost, costs) } end
  return { status = failure.kind, code = failure.code, maybe_charged = failure.maybe_charged, message = failure.message }
end

local function check_all(c)
  local members, sum, costs = msgpack.array {}, 0, {}
  for i = 1, c.items.n do
    local policy, key, cost = c.items[i][1], c.items[i][2], c.items[i][3] or 1
    members[i] = msgpack.array { policy, limiter.Limiter.shorten(clients[c.client], key), cost }
    costs[i], sum = cost, sum + cost
  end
  return called(c, "check_all", { members }, sum, costs)
end

local COMMANDS = {
  open = function(c)
    clients[c.client], fakes[c.client] = new { socket = c.socket, timeout = c.timeout_ms }, nil
    return {}
  end,
  close = function(c) -- a pool has no end of its own: its connections are taken out until one is new
    local one = not fakes[c.client] and clients[c.client]
    for _ = 1, 65 do
      local connection = one and one.platform.connect(one.client.path, 1)
      if not connection then break end
      connection.close()
      if connection.is_new then break end
    end
    return {}
  end,
  check = function(c)
    return called(c, "check", { c.policy, limiter.Limiter.shorten(clients[c.client], c.key), c.cost or 1 }, c.cost or 1)
  end,
  check_all = check_all,
  fake = function(c)
    clients[c.client] = new()
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
    if failure then return { status = failure.kind, code = failure.code, message = failure.message, maybe_charged = failure.maybe_charged } end
    if #missing == 0 then return {} end
    return { status = "refused", code = "UNKNOWN_POLICY", missing = msgpack.array(missing), message = "no policy " .. table.concat(missing, ", "), maybe_charged = false }
  end,
  join_key = function(c) return { key = http.join(c.parts) } end,
  parse_limit = function(c)
    local count, window = limiter.parse_limit(c.text)
    return { settings = { algorithm = "fixed_window", limit = count, window = window, start = "first_hit" } }
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
  local work = COMMANDS[command["do"]]
  local is_done, answer = pcall(work or function() return { status = "unknown" } end, command)
  if not is_done then
    local is_ours = type(answer) == "string" and answer:find("^ratelimitd: ")
    answer = { status = is_ours and "argument" or "bug", message = tostring(answer), maybe_charged = false }
  end
  ngx.update_time()
  answer.status = answer.status or "ok"
  answer.ms_1000 = math.floor((ngx.now() - started) * 1000000)
  ngx.print(msgpack.pack(answer))
end

return { run = run }
