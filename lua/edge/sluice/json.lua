-- A strict JSON reader for small texts (token headers and claims). It rejects duplicate names, invalid UTF-8, lone
-- surrogates, numbers beyond a double, deep nesting, and text after the value: two readers of a credential must not
-- read it differently. cjson is not strict enough, and not installed everywhere.

local byte, char, find, sub = string.byte, string.char, string.find, string.sub
local concat = table.concat
local tonumber = tonumber
local setmetatable = setmetatable
local floor = math.floor
local HUGE = math.huge

local MAX_DEPTH = 8

local _M = {}

-- null is JSON's null; a JSON array is a table with the metatable `array`
_M.null = setmetatable({}, { __tostring = function() return "null" end })
_M.array = {}

local value -- forward: value(text, at, depth) -> value, next position; or nil, nil, why

local ESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
    0x80 + code % 64)
end

-- The first byte of a sequence of 2, 3 or 4 determines its length. Some first bytes restrict the second one, which
-- excludes overlong forms, surrogates and code points above U+10FFFF.
local function is_utf8(s)
  local i, n = 1, #s
  while i <= n do
    local a = byte(s, i)
    if a < 0x80 then
      i = i + 1
    else
      local more
      local low, high = 0x80, 0xBF
      if a >= 0xC2 and a <= 0xDF then
        more = 1
      elseif a >= 0xE0 and a <= 0xEF then
        more = 2
        low, high = a == 0xE0 and 0xA0 or low, a == 0xED and 0x9F or high
      elseif a >= 0xF0 and a <= 0xF4 then
        more = 3
        low, high = a == 0xF0 and 0x90 or low, a == 0xF4 and 0x8F or high
      else
        return false
      end
      for k = 1, more do
        local b = byte(s, i + k)
        if not b or b < low or b > high then
          return false
        end
        low, high = 0x80, 0xBF
      end
      i = i + more + 1
    end
  end
  return true
end

local function skip(text, at)
  return find(text, "[^ \t\r\n]", at) or #text + 1
end

local function hex4(text, at)
  local digits = sub(text, at, at + 3)
  if not find(digits, "^%x%x%x%x$") then
    return nil
  end
  return tonumber(digits, 16)
end

-- escape(text, at): at is behind the backslash
local function escape(text, at)
  local letter = sub(text, at, at)
  if letter ~= "u" then
    local plain = ESCAPES[letter]
    if not plain then
      return nil, nil, "bad escape"
    end
    return plain, at + 1
  end
  local code = hex4(text, at + 1)
  if not code then
    return nil, nil, "bad \\u escape"
  end
  if code < 0xD800 or code > 0xDFFF then
    return utf8(code), at + 5
  end
  local low = code < 0xDC00 and sub(text, at + 5, at + 6) == "\\u" and hex4(text, at + 7)
  if not low or low < 0xDC00 or low > 0xDFFF then
    return nil, nil, "lone surrogate"
  end
  return utf8(0x10000 + (code - 0xD800) * 1024 + (low - 0xDC00)), at + 11
end

-- string_at(text, at): at is behind the opening quote
local function string_at(text, at)
  local parts, n = nil, 0
  while true do
    local stop = find(text, '[%z\1-\31"\\]', at)
    if not stop then
      return nil, nil, "unfinished string"
    end
    local b = byte(text, stop)
    local piece = sub(text, at, stop - 1)
    if b == 34 then
      if parts then
        parts[n + 1] = piece
        piece = concat(parts)
      end
      return piece, stop + 1
    elseif b ~= 92 then
      return nil, nil, "control character in a string"
    end
    local plain, next_at, err = escape(text, stop + 1)
    if not plain then
      return nil, nil, err
    end
    parts = parts or {}
    parts[n + 1], parts[n + 2] = piece, plain
    n = n + 2
    at = next_at
  end
end

local function number_at(text, at)
  local _, stop = find(text, "^-?%d+", at)
  if not stop or find(text, "^-?0%d", at) then
    return nil, nil, "bad number"
  end
  if byte(text, stop + 1) == 46 then
    _, stop = find(text, "^%.%d+", stop + 1)
    if not stop then
      return nil, nil, "bad number"
    end
  end
  if find(text, "^[eE]", stop + 1) then
    _, stop = find(text, "^[eE][+-]?%d+", stop + 1)
    if not stop then
      return nil, nil, "bad number"
    end
  end
  local digits = sub(text, at, stop)
  local number = tonumber(digits)
  if not number then -- the exponent has more digits than LuaJIT reads
    number = (find(digits, "[eE]%-") or not find(digits, "^[^eE]*[1-9]")) and 0 or HUGE
  end
  if number == HUGE or number == -HUGE then
    return nil, nil, "number out of range"
  end
  return number, stop + 1
end

local function array_at(text, at, depth)
  local out, n = setmetatable({}, _M.array), 0
  at = skip(text, at)
  if byte(text, at) == 93 then
    return out, at + 1
  end
  while true do
    local item, next_at, err = value(text, at, depth)
    if not next_at then
      return nil, nil, err
    end
    n = n + 1
    out[n] = item
    at = skip(text, next_at)
    local b = byte(text, at)
    if b == 93 then
      return out, at + 1
    elseif b ~= 44 then
      return nil, nil, "expected , or ]"
    end
    at = at + 1
  end
end

local function object_at(text, at, depth)
  local out = {}
  at = skip(text, at)
  if byte(text, at) == 125 then
    return out, at + 1
  end
  while true do
    at = skip(text, at)
    if byte(text, at) ~= 34 then
      return nil, nil, "expected a name"
    end
    local name, after, err = string_at(text, at + 1)
    if not name then
      return nil, nil, err
    end
    if out[name] ~= nil then
      return nil, nil, "duplicate name"
    end
    at = skip(text, after)
    if byte(text, at) ~= 58 then
      return nil, nil, "expected :"
    end
    out[name], at, err = value(text, at + 1, depth)
    if not at then
      return nil, nil, err
    end
    at = skip(text, at)
    local b = byte(text, at)
    if b == 125 then
      return out, at + 1
    elseif b ~= 44 then
      return nil, nil, "expected , or }"
    end
    at = at + 1
  end
end

local WORDS = { t = { "true", true }, f = { "false", false }, n = { "null", _M.null } }

function value(text, at, depth)
  at = skip(text, at)
  local first = sub(text, at, at)
  if first == '"' then
    return string_at(text, at + 1)
  elseif first == "{" or first == "[" then
    if depth >= MAX_DEPTH then
      return nil, nil, "nested too deeply"
    end
    if first == "{" then
      return object_at(text, at + 1, depth + 1)
    end
    return array_at(text, at + 1, depth + 1)
  end
  local word = WORDS[first]
  if word then
    if sub(text, at, at + #word[1] - 1) ~= word[1] then
      return nil, nil, "bad word"
    end
    return word[2], at + #word[1]
  end
  return number_at(text, at)
end

-- decode(text) -> value; or nil, err. Errors are for logs: they quote nothing of the text.
function _M.decode(text)
  if not is_utf8(text) then
    return nil, "not UTF-8"
  end
  local out, at, err = value(text, 1, 0)
  if not at then
    return nil, err
  end
  if skip(text, at) <= #text then
    return nil, "something after the value"
  end
  return out
end

-- object(text) -> table; or nil, err: as decode, for objects only
function _M.object(text)
  local out, err = _M.decode(text)
  if err then
    return nil, err
  end
  if type(out) ~= "table" or out == _M.null or getmetatable(out) == _M.array then
    return nil, "not an object"
  end
  return out
end

return _M
