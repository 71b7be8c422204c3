-- ratelimitd.msgpack: the part of MessagePack that ratelimitd's protocol uses.
--
-- Runs on Lua 5.1 to 5.4 and LuaJIT. Numbers are whole, from -(2^53 - 1) to 2^53 - 1; there are no floats and no ext types.
-- A Lua table is written as an array when it was made by msgpack.array, else as a map.

local M = {}

local char, byte, floor = string.char, string.byte, math.floor

M.DEPTH_MAX = 16 -- nested arrays and maps of an answer
M.BYTES_MAX = 4 * 1024 * 1024 -- of one answer
M.MEMBERS_MAX = 65536 -- of one array or map

local array_mark = {}

-- The values of `list` as a MessagePack array, also where it is empty.
function M.array(list) return setmetatable(list, array_mark) end

-- `value` as `width` bytes, most significant first.
local function big_endian(value, width)
  local bytes = {}
  for i = width, 1, -1 do
    bytes[i] = char(value % 256)
    value = floor(value / 256)
  end
  return table.concat(bytes)
end

-- A head of `tag` and the length or number in the narrowest of the widths 1, 2, 4 and 8 that holds it.
local function head(tag8, tag16, tag32, value)
  if tag8 and value < 256 then return char(tag8, value) end
  if value < 65536 then return char(tag16) .. big_endian(value, 2) end
  return char(tag32) .. big_endian(value, 4)
end

local function pack_integer(value)
  if value ~= floor(value) then error("ratelimitd: " .. value .. " is not a whole number", 0) end
  if value >= 0 then
    if value < 128 then return char(value) end
    if value < 4294967296 then return head(0xcc, 0xcd, 0xce, value) end
    return char(0xcf) .. big_endian(value, 8)
  end
  if value >= -32 then return char(256 + value) end
  local low = value % 4294967296
  return char(0xd3) .. big_endian((value - low) / 4294967296 % 4294967296, 4) .. big_endian(low, 4)
end

local function pack_text(text)
  if #text < 32 then return char(0xa0 + #text) .. text end
  return head(0xd9, 0xda, 0xdb, #text) .. text
end

-- The bytes of a value: nil, boolean, whole number, string, map, or an array that M.array has marked.
function M.pack(value)
  local kind = type(value)
  if kind == "nil" then return "\192" end
  if kind == "boolean" then return value and "\195" or "\194" end
  if kind == "number" then return pack_integer(value) end
  if kind == "string" then return pack_text(value) end
  if kind ~= "table" then error("ratelimitd: a " .. kind .. " cannot be sent", 0) end

  local parts, n = {}, 0
  if getmetatable(value) == array_mark then
    n = #value
    for i = 1, n do parts[i] = M.pack(value[i]) end
    return (n < 16 and char(0x90 + n) or head(nil, 0xdc, 0xdd, n)) .. table.concat(parts)
  end
  for name, member in pairs(value) do
    n = n + 1
    parts[n] = M.pack(name) .. M.pack(member)
  end
  table.sort(parts) -- equal maps have equal bytes
  return (n < 16 and char(0x80 + n) or head(nil, 0xde, 0xdf, n)) .. table.concat(parts)
end

-- From 2^53 on as a float, of which only its size matters: an integer of Lua 5.3 could overflow.
local function number_of(bytes)
  local is_large = #bytes == 8 and (byte(bytes, 1) > 0 or byte(bytes, 2) >= 32)
  local value = is_large and 0.0 or 0
  for i = 1, #bytes do value = value * 256 + byte(bytes, i) end
  return value
end

local signed
function signed(bytes)
  if #bytes == 8 then return signed(bytes:sub(1, 4)) * 4294967296 + number_of(bytes:sub(5)) end
  local value, limit = number_of(bytes), 2 ^ (8 * #bytes)
  return value >= limit / 2 and value - limit or value
end

-- The meaning of a value's first byte: the kind, the width of the number that follows, or the length itself.
local WIDE = {
  [0xc4] = { "text", 1 }, [0xc5] = { "text", 2 }, [0xc6] = { "text", 4 },
  [0xcc] = { "unsigned", 1 }, [0xcd] = { "unsigned", 2 }, [0xce] = { "unsigned", 4 }, [0xcf] = { "unsigned", 8 },
  [0xd0] = { "signed", 1 }, [0xd1] = { "signed", 2 }, [0xd2] = { "signed", 4 }, [0xd3] = { "signed", 8 },
  [0xd9] = { "text", 1 }, [0xda] = { "text", 2 }, [0xdb] = { "text", 4 },
  [0xdc] = { "array", 2 }, [0xdd] = { "array", 4 }, [0xde] = { "map", 2 }, [0xdf] = { "map", 4 },
}

local function first_byte(tag)
  if tag < 0x80 then return "number", tag end
  if tag < 0x90 then return "map", tag - 0x80 end
  if tag < 0xa0 then return "array", tag - 0x90 end
  if tag < 0xc0 then return "text", tag - 0xa0 end
  if tag == 0xc0 then return "nil" end
  if tag == 0xc2 or tag == 0xc3 then return "boolean", tag == 0xc3 end
  if tag >= 0xe0 then return "number", tag - 256 end
  return nil
end

local function invalid(message) error({ kind = "protocol", maybe_charged = true, message = message }, 0) end

local function unpack_value(read, budget, depth)
  if depth > M.DEPTH_MAX then invalid("an answer is nested too deeply") end
  local tag = byte(read(1))
  local kind, size = first_byte(tag)
  if not kind then
    local wide = WIDE[tag]
    if not wide then invalid(("an answer has the byte 0x%02x"):format(tag)) end
    kind = wide[1]
    size = (kind == "signed" and signed or number_of)(read(wide[2]))
    if kind == "signed" or kind == "unsigned" then kind = "number" end
  end
  if kind == "number" or kind == "boolean" then return size end
  if kind == "nil" then return nil end

  -- Each member has at least a byte, so a size that cannot arrive is refused before anything is kept for it.
  budget.bytes = budget.bytes - 1 - size
  if budget.bytes < 0 then invalid("an answer is longer than 4 MiB") end
  if kind == "text" then return size > 0 and read(size) or "" end

  if size > M.MEMBERS_MAX then invalid("an answer has more than 65536 members") end
  local result = {}
  if kind == "array" then
    result.n = size
    M.array(result)
    for i = 1, size do result[i] = unpack_value(read, budget, depth + 1) end
    return result
  end
  for _ = 1, size do
    local name = unpack_value(read, budget, depth + 1)
    local member = unpack_value(read, budget, depth + 1)
    if name ~= nil then result[name] = member end
  end
  return result
end

-- One value. read(n) returns exactly n bytes or raises; an answer that breaks a bound raises {kind = "protocol", message}.
-- An array has its length in `n`, because it may hold nil.
function M.unpack(read) return unpack_value(read, { bytes = M.BYTES_MAX }, 1) end

return M
