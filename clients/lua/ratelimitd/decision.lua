-- ratelimitd.decision: what the daemon answered, checked field by field. What is not a decision must not become a yes.

local M = {}

local NUMBER_MAX = 2 ^ 53 - 1
local NEEDED = { "limit", "remaining", "retry_after_ms", "reset_after_ms" }
local NUMBERS = { "delay_ms", "granted", "policy_version", "quota", "window_ms", "of_reset_ms" } -- may be left out
local TEXTS = { "bound_by", "reason", "of" }
local GENERATED_NAMES = { "^inline%-" .. ("%x"):rep(16), "^id%+" .. ("%x"):rep(16) }
local UNCOUNTED = { allow = true, deny = true, unlimited = true } -- sources: failure answers, and no limit at all

local function is_number(value, least)
  return type(value) == "number" and value >= least and value <= NUMBER_MAX
end

local function is_decision(value)
  if type(value) ~= "table" or type(value.allowed) ~= "boolean" or type(value.source) ~= "string" then return false end
  for _, name in ipairs(NEEDED) do
    if not is_number(value[name], name == "retry_after_ms" and -1 or 0) then return false end
  end
  for _, name in ipairs(NUMBERS) do
    if value[name] ~= nil and not is_number(value[name], 0) then return false end
  end
  for _, name in ipairs(TEXTS) do
    if value[name] ~= nil and type(value[name]) ~= "string" then return false end
  end
  for _, name in ipairs({ "shadow_denied", "near" }) do
    if value[name] ~= nil and type(value[name]) ~= "boolean" then return false end
  end
  return true
end

-- What the daemon leaves out has these values.
local function completed(decision, cost)
  decision.granted = decision.granted or decision.allowed and cost or 0
  decision.delay_ms = decision.delay_ms or 0
  decision.policy_version = decision.policy_version or 0
  decision.shadow_denied = decision.shadow_denied or false
  decision.near = decision.near or false
  return decision
end

-- The answer to METHOD, check or check_all of MEMBERS, {policy, key, cost} each; nil: it is none.
function M.read(value, method, members)
  if not is_decision(value) then return nil end
  if method == "check" then return completed(value, members[1][3]) end

  if type(value.members) ~= "table" or value.members.n ~= #members then return nil end
  local sum = 0
  for i, member in ipairs(members) do
    if not is_decision(value.members[i]) then return nil end
    completed(value.members[i], member[3])
    sum = sum + member[3]
  end
  return completed(value, sum)
end

-- inline- (or id+) and 16 digits, in front of what answers call a limit; nil: the name is not generated.
local function generated_in(text)
  local name = text and (text:match(GENERATED_NAMES[1]) or text:match(GENERATED_NAMES[2]))
  local next_one = name and text:sub(#name + 1, #name + 1)
  return (next_one == "" or next_one == "/") and name or nil
end

local function rename(decision, names)
  for _, field in ipairs { "of", "bound_by" } do
    local generated = generated_in(decision[field])
    local name = generated and names[generated]
    if name then decision[field] = name .. decision[field]:sub(#generated + 1) end
  end
end

-- Puts the names that inline policies have in place of the generated ones.
function M.put_names(decision, members)
  local names, own = {}, {}
  for i, member in ipairs(members) do
    local name = type(member[1]) == "table" and member[1].name
    local one = decision.members and decision.members[i] or decision
    if name then
      own[i] = {}
      for _, field in ipairs { "of", "bound_by" } do
        local generated = generated_in(one[field])
        if generated then names[generated], own[i][generated] = name, name end
      end
    end
  end

  rename(decision, names)
  for i, one in ipairs(decision.members or {}) do rename(one, own[i] or {}) end
end

-- Was something charged, as far as it was allowed?
function M.is_counted(decision) return not UNCOUNTED[decision.source] and not decision.shadow_denied end

-- Has this one less left? A denial has least.
function M.is_tighter(one, other)
  if one.allowed ~= other.allowed then return not one.allowed end
  return one.remaining < other.remaining
end

return M
