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

-- The denial that answers QUESTION, the bytes of its members, at the time NOW_MS; nil: ask the daemon.
function Own:find(question, now_ms)
  local decision = at_time(self.denials[question], now_ms)
  if not decision then self.denials[question] = nil end
  return decision
end

-- Each one takes the next place of a ring: the oldest goes.
function Own:keep(question, decision, since_ms)
  local kept = to_keep(decision, since_ms, self.for_ms)
  if not kept then return end

  local oldest = self.ring[self.at]
  if oldest and self.denials[oldest] and self.denials[oldest].at == self.at then self.denials[oldest] = nil end
  kept.at, self.ring[self.at] = self.at, question
  self.denials[question] = kept
  self.at = self.at % DENIALS_MAX + 1
end

function Shared:find(question, now_ms)
  local bytes, at = self.dict:get(question), 0
  if not bytes then return nil end
  local kept = msgpack.unpack(function(n)
    at = at + n
    return bytes:sub(at - n + 1, at)
  end)
  return at_time(kept, now_ms)
end

function Shared:keep(question, decision, since_ms)
  local kept = to_keep(decision, math.floor(since_ms), self.for_ms)
  if kept and kept.until_ms > kept.since_ms then
    self.dict:set(question, msgpack.pack(kept), (kept.until_ms - kept.since_ms) / 1000)
  end
end

return M
