-- ratelimitd.denials: denials that are remembered for a short time, so that a flood does not reach the daemon. In the memory of
-- this worker or, in nginx, in a shared dict of all workers.

local msgpack = require "ratelimitd.msgpack"

local M = {}

local DENIALS_MAX = 1024

local Own, Shared = {}, {}
Own.__index, Shared.__index = Own, Shared

-- FOR_MS: how long at most. DICT: nil, or the shared dict that keeps them; then its size is the bound.
function M.new(for_ms, dict)
  if dict then return setmetatable({ for_ms = for_ms, dict = dict }, Shared) end
  return setmetatable({ for_ms = for_ms, denials = {}, ring = {}, at = 1 }, Own)
end

local function aged(decision, ms)
  local later = {}
  for name, value in pairs(decision) do later[name] = value end
  later.source = "deny_cache"
  if decision.retry_after_ms >= 0 then later.retry_after_ms = math.max(1, decision.retry_after_ms - ms) end
  later.reset_after_ms = math.max(0, decision.reset_after_ms - ms)
  if decision.of_reset_ms then later.of_reset_ms = math.max(0, decision.of_reset_ms - ms) end

  if decision.members then
    later.members = msgpack.array {}
    for i, one in ipairs(decision.members) do later.members[i] = one.allowed and one or aged(one, ms) end
  end
  return later
end

-- KEPT at the time NOW_MS; nil when its time is over, or the clock was set back.
local function at_time(kept, now_ms)
  if not kept or now_ms < kept.since_ms or now_ms >= kept.until_ms then return nil end
  return aged(kept.decision, math.floor(now_ms - kept.since_ms))
end

-- SINCE_MS: when the daemon was asked. nil: the decision is not to be kept.
local function to_keep(decision, since_ms, for_ms)
  if decision.allowed or decision.source == "deny" then return nil end
  if decision.retry_after_ms >= 0 then for_ms = math.min(for_ms, decision.retry_after_ms) end
  return { decision = decision, since_ms = since_ms, until_ms = since_ms + for_ms }
end

-- What stands for a refund with this policy and key.
local function refund_of(policy, key) return "refund" .. msgpack.pack(policy) .. msgpack.pack(key) end

-- Did a refund with one of these members, {policy, key, cost} each, come after KEPT?
local function is_forgotten(store, kept, members)
  for _, member in ipairs(members) do
    local refund = store:get(refund_of(member[1], member[2]))
    if refund and refund.since_ms >= kept.since_ms then return true end
  end
  return false
end

-- The denial that answers METHOD of MEMBERS at the time NOW_MS; nil: ask the daemon.
local function find(store, method, members, now_ms)
  local kept = store:get(method .. msgpack.pack(msgpack.array(members)))
  local decision = at_time(kept, now_ms)
  return decision and not is_forgotten(store, kept, members) and decision or nil
end

local function keep(store, method, members, decision, since_ms)
  local kept = to_keep(decision, math.floor(since_ms), store.for_ms)
  if kept and kept.until_ms > kept.since_ms then store:put(method .. msgpack.pack(msgpack.array(members)), kept) end
end

-- After a refund: denials with this policy and key are no longer true.
local function forget(store, policy, key, now_ms)
  now_ms = math.floor(now_ms)
  store:put(refund_of(policy, key), { since_ms = now_ms, until_ms = now_ms + store.for_ms })
end

for _, store in ipairs { Own, Shared } do store.find, store.keep, store.forget = find, keep, forget end

function Own:get(question) return self.denials[question] end

-- Each one takes the next place of a ring: the oldest goes.
function Own:put(question, kept)
  local oldest = self.ring[self.at]
  if oldest and self.denials[oldest] and self.denials[oldest].at == self.at then self.denials[oldest] = nil end
  kept.at, self.ring[self.at] = self.at, question
  self.denials[question] = kept
  self.at = self.at % DENIALS_MAX + 1
end

function Shared:get(question)
  local bytes, at = self.dict:get(question), 0
  if not bytes then return nil end
  return msgpack.unpack(function(n)
    at = at + n
    return bytes:sub(at - n + 1, at)
  end)
end

function Shared:put(question, kept)
  self.dict:set(question, msgpack.pack(kept), (kept.until_ms - kept.since_ms) / 1000)
end

return M
