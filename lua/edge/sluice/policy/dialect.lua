-- Finds Lua that LuaJIT and the Go gateway's Lua 5.1 read differently: neither edge accepts it.
-- gateway/policy/dialect.go is the same in Go.

local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local _M = {}

-- Tokens before an empty statement, which Lua 5.1 does not have.
local OPENS_BLOCK = { [""] = true, [";"] = true, ["do"] = true, ["then"] = true, ["else"] = true, ["repeat"] = true }

-- quote(text) -> the text as a message shows it, the same bytes as in the Go gateway
function _M.quote(text)
  if #text > 40 then
    text = sub(text, 1, 40) .. "..."
  end
  return '"' .. text:gsub("[%z\1-\31\127]", "?") .. '"'
end
local quote = _M.quote

local function long_string(source, at)
  local equals = match(source, "^%[(=*)%[", at)
  return equals and (select(2, find(source, "]" .. equals .. "]", at, true)) or #source)
end

local function number(source, at)
  local stop = select(2, find(source, "^%.?%d", at))
  if not stop then
    return nil
  end
  while true do
    local _, exponent = find(source, "^[eE][+-]%d", stop + 1)
    local _, other = find(source, "^[%w_.]", stop + 1)
    if not (exponent or other) then
      return stop
    end
    stop = exponent or other
  end
end

-- plain_number(text) -> whether all edges read the same number. The gateway's engine reads one with leading zeros as
-- octal, and one beyond its range as NaN.
local function plain_number(text)
  local hex = match(text, "^0[xX](%x+)$")
  if hex then
    return #hex <= 15
  end
  local mantissa = match(text, "^(.-)[eE][+-]?%d%d?$") or text
  local whole = match(mantissa, "^(%d+)%.?%d*$")
  return whole and #whole <= 100 and not find(whole, "^0%d") or match(mantissa, "^%.%d+$")
end

-- short_string(source, at) -> its last byte, and the error of an escape in it, or nil
local function short_string(source, at)
  local mark, i = byte(source, at), at + 1
  while i <= #source do
    local c = byte(source, i)
    if c == mark then
      return i
    elseif c == 10 then
      return i - 1
    elseif c == 92 then
      i = i + 1
      local digits = match(source, "^%d%d?%d?", i)
      local known = digits and tonumber(digits) <= 255 or not digits and find(source, "^[abfnrtv\\\"'\n\r]", i)
      if i <= #source and not known then
        return i, quote("\\" .. (digits or sub(source, i, i)))
          .. " in a string is not read by every edge: write the character itself"
      end
      i = i + (digits and #digits - 1 or 0)
    end
    i = i + 1
  end
  return #source
end

local function newlines(text)
  return select(2, text:gsub("\n", ""))
end

local function line_of(source, at)
  return newlines(sub(source, 1, at - 1)) + 1
end

-- start(source) -> the position of the first token: LuaJIT skips a byte order mark and a line for the shell
local function start(source)
  local at = match(source, "^\239\187\191()") or 1
  if byte(source, at) == 35 then
    return find(source, "\n", at, true) or #source + 1
  end
  return at
end

-- is_plain_key(token) -> whether the token is a key that can be compared with the names of fields
local function is_plain_key(token)
  return find(token, '^"[^"\\]*"$') or find(token, "^'[^'\\]*'$")
end

-- field_names() -> a function that gets the tokens of a source one by one, and returns nil; or err: a table has a field
-- twice, or a key that could be one of its fields or list entries. Engines differ about which of the two counts.
local OPEN = { ["("] = true, ["["] = true, ["function"] = true, ["if"] = true, ["do"] = true, ["repeat"] = true }
local CLOSE = { ["}"] = true, [")"] = true, ["]"] = true, ["end"] = true, ["until"] = true }
local SEPARATOR = { ["{"] = true, [","] = true, [";"] = true }

local function field_names()
  local open = {} -- for each open bracket and block: the fields of a table so far, or false
  local before1, before2, before3, before4 = "", "", "", ""
  return function(token)
    -- No expression begins with "[", so behind these marks it is a key.
    if before1 == "[" and SEPARATOR[before2] and not is_plain_key(token)
      or before2 == "[" and SEPARATOR[before3] and token ~= "]" then
      return "a key in brackets that is not a quoted name: write the values of a list in their order"
    end
    if (token == "," or token == ";") and SEPARATOR[before1] then
      return quote(token) .. " with no value before it: remove it"
    end
    if token == "{" then
      open[#open + 1] = {}
    elseif OPEN[token] then
      open[#open + 1] = false
    elseif CLOSE[token] then
      open[#open] = nil
    elseif token == "=" then
      local name, mark = before1, before2
      if name == "]" then
        name, mark = match(before2, "^[\"']*(.-)[\"']*$"), before4
      end
      local fields = open[#open]
      if fields and SEPARATOR[mark] then
        if fields[name] then
          return quote(name) .. " appears twice in one table: remove one"
        end
        fields[name] = true
      end
    end
    before1, before2, before3, before4 = token, before1, before2, before3
  end
end

-- token(source, at, previous) -> its last byte, and whether it is more than white space or a comment; or its last byte,
-- false, err. previous: the token before it, "" if there is none
local function token(source, at, previous)
  local c = byte(source, at)
  if find(source, "^[ \t\r\n]", at) then
    return at, false
  elseif c < 32 then
    return at, false, "a control character: it may be in strings and comments only"
  elseif find(source, "^%-%-%[=+[^=[]", at) or find(source, "^%-%-%[=+$", at) then
    return at, false, "a comment that begins like a long one: put a space behind --"
  elseif find(source, "^%-%-", at) then
    return long_string(source, at + 2) or (find(source, "\n", at, true) or #source + 1) - 1, false
  elseif c == 34 or c == 39 then
    local stop, wrong = short_string(source, at)
    return stop, not wrong, wrong
  elseif long_string(source, at) then
    return long_string(source, at), true
  elseif number(source, at) then
    local stop = number(source, at)
    local text = sub(source, at, stop)
    if not plain_number(text) then
      return stop, false, quote(text) .. " is not a number that every edge reads: write it as 40 or 1.5"
    end
    return stop, true
  elseif find(source, "^[%a_]", at) then
    local stop = select(2, find(source, "^[%w_]+", at))
    if sub(source, at, stop) == "goto" then
      return stop, false, "goto is not read by every edge in the same way: use if, for or while"
    end
    return stop, true
  elseif c >= 128 then
    return at, false, "a letter that is not ASCII: it may be in strings and comments only"
  elseif c == 59 and OPENS_BLOCK[previous] then
    return at, false, '";" with no statement before it: remove it'
  end
  return find(source, "^[=~<>]=", at) and at + 1 or at, true
end

-- each_token(source, f) calls f(token, position) for each token until f returns err -> nil; or err, position
local function each_token(source, f)
  local at, previous, in_header = start(source), "", false
  while at <= #source do
    local stop, is_token, err = token(source, at, previous)
    if is_token then
      previous = sub(source, at, stop)
      err = f(previous, at)
      in_header = in_header or previous == "function"
      if in_header and previous == ")" then -- the body of the function is a block
        previous, in_header = "do", false
      end
    end
    if err then
      return err, at
    end
    at = stop + 1
  end
end

-- foreign(source) -> nil; or err, line: Lua that edges read differently. The parser reports unfinished source.
function _M.foreign(source)
  local lone = find(source, "\r[^\n]") or find(source, "\r$")
  if lone then
    return "a carriage return without a line feed: end lines as on Unix or Windows", line_of(source, lone)
  end
  local err, at = each_token(source, field_names())
  return err, err and line_of(source, at)
end

-- tokens(source) -> a list of { text, line }, for source without Lua that edges read differently. A string is one
-- token, which begins with a quote.
function _M.tokens(source)
  local list, line, before = {}, 1, 1
  each_token(source, function(text, at)
    line, before = line + newlines(sub(source, before, at - 1)), at
    list[#list + 1] = { text, line }
  end)
  return list
end

-- too_deep(source, most) -> the line where brackets are nested deeper, or nil. Brackets in strings and comments count.
function _M.too_deep(source, most)
  local depth = 0
  for at, bracket in source:gmatch("()([][(){}])") do
    if find(bracket, "[[({]") then
      depth = depth + 1
      if depth > most then
        return line_of(source, at)
      end
    else
      depth = depth - 1
    end
  end
end

return _M
