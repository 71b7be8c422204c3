-- ratelimitd.http: a decision as HTTP, and the client's address as a key.
--
-- The headers follow draft-ietf-httpapi-ratelimit-headers-10. Nothing here knows nginx or HAProxy.

local M = {}

local ceil, max = math.ceil, math.max

local PROBLEMS = "https://iana.org/assignments/http-problem-types#"

local function seconds(ms) return ("%d"):format(ceil(ms / 1000)) end

-- A Structured Fields String.
local function sf_string(text) return '"' .. text:gsub('["\\]', "\\%0") .. '"' end

local function json_string(text)
  local escaped = text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end)
  return '"' .. escaped .. '"'
end

-- Did somebody count, under a name that can stand in a field? Not for a failure answer, an unlimited policy, or a denial that a
-- shadow policy let through.
local function has_figures(decision)
  return decision.of ~= nil and decision.quota ~= nil and decision.window_ms ~= nil and not decision.shadow_denied
    and not decision.of:find("[^\32-\126]")
end

local function policy_item(decision)
  local item = sf_string(decision.of) .. (";q=%d"):format(decision.quota)
  if decision.window_ms > 0 then item = item .. ";w=" .. seconds(decision.window_ms)
  else item = item .. ';qu="concurrent-requests"' end
  if decision.limit > decision.quota then item = item .. (";ratelimitd-burst=%d"):format(decision.limit) end
  return item
end

-- Until there is more of the limit in `of`; nil where it is not known.
local function wait_of(decision)
  local wait_ms = decision.retry_after_ms
  if decision.allowed then wait_ms = decision.of_reset_ms end
  return decision.window_ms > 0 and wait_ms and wait_ms >= 0 and wait_ms or nil
end

local function limit_item(decision)
  local wait_ms = wait_of(decision)
  return sf_string(decision.of) .. (";r=%d"):format(decision.remaining) .. (wait_ms and ";t=" .. seconds(wait_ms) or "")
end

-- Does an Accept field take JSON? So does a request without one.
local function is_json_accepted(accept)
  if not accept or accept == "" then return true end
  for range in accept:lower():gmatch("[^,]+") do
    local kind = range:match("^%s*([^;%s]*)")
    local quality = tonumber(range:match(";%s*q=([%d.]+)") or 1)
    local is_json = kind == "*/*" or kind == "application/*" or kind == "application/json" or kind:match("%+json$")
    if is_json and quality > 0 then return true end
  end
  return false
end

local function problem(status, kind, title, more)
  return ('{"type":%s,"title":%s,"status":%d%s}'):format(json_string(PROBLEMS .. kind), json_string(title), status, more or "")
end

local IETF, LEGACY = { ietf = true, both = true }, { legacy = true, both = true }

-- The fields of an answer that has this decision: a list of {name, value}. FORM is "ietf" (the default), "legacy", "both" or
-- "none", or a list with the form of each member. RESET, of the legacy form, is "delta" (the default) or "epoch", which needs
-- the time NOW_MS. Of a check_all, the members' limits are listed one after another; the legacy form reports the whole.
function M.headers(decision, form, reset, now_ms)
  local fields, policies, limits, has_legacy = {}, {}, {}, false
  for i, one in ipairs(decision.members or { decision }) do
    local own = type(form) == "table" and form[i] or form or "ietf"
    if IETF[own] and has_figures(one) then
      policies[#policies + 1], limits[#limits + 1] = policy_item(one), limit_item(one)
    end
    has_legacy = has_legacy or LEGACY[own]
  end

  if #limits > 0 then
    fields[1] = { "RateLimit-Policy", table.concat(policies, ", ") }
    fields[2] = { "RateLimit", table.concat(limits, ", ") }
  end
  if has_figures(decision) and has_legacy then
    fields[#fields + 1] = { "X-RateLimit-Limit", ("%d"):format(decision.limit) }
    fields[#fields + 1] = { "X-RateLimit-Remaining", ("%d"):format(decision.remaining) }
    local wait_ms = wait_of(decision)
    if wait_ms then fields[#fields + 1] = { "X-RateLimit-Reset", seconds(wait_ms + (reset == "epoch" and now_ms or 0)) } end
  end
  return fields
end

-- The answer to a denied request: status, fields (the Content-Type last), body. 503 where no limit counted: without a
-- decision, or a failure answer.
function M.denial(decision, accept, form, reset, now_ms)
  local is_json = is_json_accepted(accept)
  local media_type = { "Content-Type", is_json and "application/problem+json" or "text/plain; charset=utf-8" }
  if not decision or decision.source == "deny" then
    return 503, { { "Retry-After", "1" }, media_type },
      is_json and problem(503, "temporary-reduced-capacity", "Temporary reduced capacity")
      or "Temporary reduced capacity: try again in 1 s.\n"
  end

  local fields = M.headers(decision, form, reset, now_ms)
  local wait = nil
  if decision.retry_after_ms >= 0 and decision.window_ms ~= 0 then
    wait = ("%d"):format(max(1, ceil(decision.retry_after_ms / 1000)))
    fields[#fields + 1] = { "Retry-After", wait }
  end
  fields[#fields + 1] = media_type

  if not is_json then return 429, fields, "Too many requests" .. (wait and ": try again in " .. wait .. " s.\n" or ".\n") end
  local name = decision.bound_by or decision.of
  local violated = name and (',"violated-policies":[%s]'):format(json_string(name))
  return 429, fields, problem(429, "quota-exceeded", "Quota exceeded", violated)
end

-- ---- addresses

-- "192.0.2.7" as four numbers, or nil.
local function parse_ipv4(text)
  local a, b, c, d = text:match("^(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)$")
  if not a then return nil end
  local numbers = {}
  for i, digits in ipairs { a, b, c, d } do
    numbers[i] = tonumber(digits)
    if numbers[i] > 255 or digits:match("^0.") then return nil end -- a leading zero would be octal elsewhere
  end
  return numbers
end

-- The 16-bit groups of one side of "::", or nil.
local function parse_groups(text)
  local groups = {}
  if text == "" then return groups end
  for part in (text .. ":"):gmatch("([^:]*):") do
    local v4 = part:find(".", 1, true) and parse_ipv4(part)
    if v4 then
      groups[#groups + 1] = v4[1] * 256 + v4[2]
      groups[#groups + 1] = v4[3] * 256 + v4[4]
    elseif part:match("^%x%x?%x?%x?$") then
      groups[#groups + 1] = tonumber(part, 16)
    else
      return nil
    end
  end
  return groups
end

-- An IPv6 address as eight numbers, or nil.
local function parse_ipv6(text)
  local left, right = text:match("^(.-)::(.*)$")
  local groups = parse_groups(left or text)
  if not left then return groups and #groups == 8 and groups or nil end

  local tail = parse_groups(right)
  if not groups or not tail or #groups + #tail > 7 then return nil end
  while #groups + #tail < 8 do groups[#groups + 1] = 0 end
  for _, group in ipairs(tail) do groups[#groups + 1] = group end
  return groups
end

-- The groups in the shortest form of RFC 5952.
local function format_ipv6(groups)
  local best, best_length, at = nil, 1, 1
  while at <= 8 do
    local stop = at
    while stop <= 8 and groups[stop] == 0 do stop = stop + 1 end
    if stop - at > best_length then best, best_length = at, stop - at end
    at = stop + 1
  end

  local text = {}
  for i = 1, 8 do text[i] = ("%x"):format(groups[i]) end
  if not best then return table.concat(text, ":") end
  return table.concat(text, ":", 1, best - 1) .. "::" .. table.concat(text, ":", best + best_length, 8)
end

-- An address without its brackets, port and zone; nil: it is none. IPv6 has no port without brackets.
local function bare_address(text)
  text = text:match("^%s*(.-)%s*$")
  local host, port = text:match("^%[([^%[%]]+)%](.*)$")
  if not host and select(2, text:gsub(":", "")) == 1 then host, port = text:match("^([^:]*)(:.*)$") end
  if host and port ~= "" and not port:match("^:%d%d?%d?%d?%d?$") then return nil end

  host = host or text
  return host:find(":", 1, true) and host:gsub("%%.*$", "") or host
end

-- The key of an address: an IPv4 address as it is, an IPv6 address as the network of its first PREFIX bits (64), an
-- IPv4-mapped address as IPv4. nil and a message for anything else.
function M.ip_key(address, prefix)
  prefix = prefix or 64
  local text = bare_address(address or "") or ""
  local v4 = parse_ipv4(text)
  if v4 then return table.concat(v4, ".") end
  local groups = text:find(":", 1, true) and parse_ipv6(text)
  if not groups then return nil, "no address to limit by: " .. ("%q"):format(address or "") end

  local is_mapped = groups[6] == 0xffff
  for i = 1, 5 do is_mapped = is_mapped and groups[i] == 0 end
  if is_mapped then
    return ("%d.%d.%d.%d"):format(math.floor(groups[7] / 256), groups[7] % 256, math.floor(groups[8] / 256), groups[8] % 256)
  end

  for i = 1, 8 do
    local kept = math.min(16, max(0, prefix - 16 * (i - 1)))
    groups[i] = groups[i] - groups[i] % 2 ^ (16 - kept)
  end
  return format_ipv6(groups) .. (prefix < 128 and "/" .. prefix or "")
end

-- Parts of a key in one text: joined by "|"; a part's own "|" and "%" are escaped.
function M.join(parts)
  local escaped = {}
  for i, part in ipairs(parts) do
    if part == "" then error("ratelimitd: a part of a key is empty", 0) end
    escaped[i] = tostring(part):gsub("[%%|]", { ["%"] = "%25", ["|"] = "%7C" })
  end
  return table.concat(escaped, "|")
end

return M
