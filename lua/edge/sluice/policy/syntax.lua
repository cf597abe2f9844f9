-- Parses the source of a policy: a subset of Lua without computation. gateway/policy/syntax.go has the grammar, and the
-- same messages. The source is not executed.

local quote = require "sluice.policy.quote"

local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local MAX_SIZE = 64 * 1024 -- bytes of source
-- LuaJIT compiles at most MAX_LOCALS locals. With that many, it compiles tables that are nested at most MAX_DEPTH deep.
local MAX_LOCALS, MAX_DEPTH = 200, 40

local _M = {}

local RESERVED = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until
  while]]):gmatch("%a+") do
  RESERVED[word] = true
end

-- A token is { text, line }. The text is a name, a number, a string in double quotes, or one other character; or ""
-- at the end of the file.

local function is_name(token)
  return find(token.text, "^[%a_]") and not RESERVED[token.text]
end

-- is_number(text) -> whether the text begins like a number
local function is_number(text)
  return find(text, "^%-?%.?%d")
end

-- begins_value(token) -> whether a value, other than a local, begins with it
local function begins_value(token)
  local text = token.text
  return find(text, '^["{]') or is_number(text) or text == "true" or text == "false"
end

-- to_number(text) -> the number; or nil, if a policy cannot have it
local function to_number(text)
  local whole, fraction = match(text, "^%-?(%d+)(.*)$")
  local good = whole and #whole <= 15 and not find(whole, "^0%d")
    and (fraction == "" or #fraction <= 10 and find(fraction, "^%.%d+$"))
  return good and tonumber(text) or nil
end

local function fail(line, message, ...)
  error({ line = line, message = message:format(...) })
end

-- unexpected(token, hint): reports a token that the grammar does not have here
local function unexpected(token, hint)
  if token.text == "" then
    fail(token.line, "unexpected end of the file: is a bracket not closed?")
  end
  fail(token.line, "unexpected %s: %s", quote(match(token.text, '^"(.*)"$') or token.text), hint)
end

-- A parser is { source, at, line, token, depth, locals, lines }: `at` and `line` are the position behind the current
-- token, `locals` the values by name, and `lines` for each table the lines of its fields and list entries.

local function drop(p, stop)
  p.line = p.line + select(2, sub(p.source, p.at, stop):gsub("\n", ""))
  p.at = stop + 1
end

-- skip_space(p): moves behind white space and comments
local function skip_space(p)
  while true do
    local source, at = p.source, p.at
    local stop = select(2, find(source, "^[ \t\r\n]+", at))
    if not stop and find(source, "^%-%-", at) then
      local equals = match(source, "^%-%-%[(=*)%[", at)
      if equals then
        stop = select(2, find(source, "]" .. equals .. "]", at, true))
          or fail(p.line, "a comment in long brackets that does not end")
      else
        stop = (find(source, "\n", at, true) or #source + 1) - 1
      end
    end
    if not stop then
      return
    end
    drop(p, stop)
  end
end

local function quoted(p, mark)
  local stop = find(p.source, "[%z\1-\31\127\\" .. mark .. "]", p.at + 1)
  local ends = stop and sub(p.source, stop, stop) or "\n"
  if ends == "\n" or ends == "\r" then
    fail(p.line, "a string that does not end on its line: is a quote missing?")
  elseif ends == "\\" then
    fail(p.line, "a backslash in a string: write the character itself")
  elseif ends ~= mark then
    fail(p.line, "a control character: it may be in comments only")
  end
  return '"' .. sub(p.source, p.at + 1, stop - 1) .. '"', stop
end

-- next_token(p): moves to the next token
local function next_token(p)
  skip_space(p)
  local source, at = p.source, p.at
  local c = byte(source, at)
  local text, stop
  if not c then
    text, stop = "", at - 1
  elseif c == 34 or c == 39 then
    text, stop = quoted(p, sub(source, at, at))
  elseif c < 32 or c == 127 then
    fail(p.line, "a control character: it may be in comments only")
  elseif c >= 128 then
    fail(p.line, "a letter that is not ASCII: it may be in strings and comments only")
  else
    text = match(source, "^%-?%.?%d[%w_.]*", at) or match(source, "^[%a_][%w_]*", at) or sub(source, at, at)
    stop = at + #text - 1
  end
  p.token, p.at = { text = text, line = p.line }, stop + 1
end

-- take(p) -> the current token; moves to the next one
local function take(p)
  local token = p.token
  next_token(p)
  return token
end

-- skip(p, text) -> whether the current token was the given one; if so, moves to the next one
local function skip(p, text)
  local found = p.token.text == text
  if found then
    next_token(p)
  end
  return found
end

local read_table

-- value(p, token) -> the value that begins with the token, which has been taken
local function value(p, token)
  local text = token.text
  if text == "{" then
    return read_table(p, token)
  elseif text == "true" or text == "false" then
    return text == "true"
  elseif byte(text) == 34 then
    return sub(text, 2, -2)
  elseif is_number(text) then
    return to_number(text) or fail(token.line, "%s is not a number of a policy: write it as 40 or 1.5", quote(text))
  elseif text == "[" then
    unexpected(token, "write the name of a field without brackets, and a string in quotes")
  elseif not is_name(token) then
    unexpected(token, "a value is a string, a number, true, false, a table or the name of a local")
  elseif p.locals[text] == nil then
    fail(token.line, "%s is not defined: write a string in quotes, and a local before its use", quote(text))
  end
  return p.locals[text]
end

-- read_table(p, open) -> the table that begins with the token open, which has been taken
function read_table(p, open)
  local t, lines = {}, {}
  p.lines[t], p.depth = lines, p.depth + 1
  if p.depth > MAX_DEPTH then
    fail(open.line, "more than %d brackets within brackets: is one not closed?", MAX_DEPTH)
  end
  while p.token.text ~= "}" do
    local first, key = take(p), #t + 1
    if is_name(first) and skip(p, "=") then
      key = first.text
      if t[key] ~= nil then
        fail(first.line, "%s appears twice in one table: remove one", quote(key))
      end
      t[key] = value(p, take(p))
    else
      t[key] = value(p, first)
    end
    lines[key] = first.line
    if not (skip(p, ",") or skip(p, ";") or p.token.text == "}") then
      local lacking = is_name(p.token) or begins_value(p.token)
      unexpected(p.token, lacking and "is a comma or a bracket missing before it?"
        or "a policy computes nothing, write the value itself")
    end
  end
  p.depth = p.depth - 1
  next_token(p)
  return t
end

-- policy(p) -> the returned value, and the line of the return
local function policy(p)
  next_token(p)
  local defined = 0
  while p.token.text == "local" do
    defined = defined + 1
    if defined > MAX_LOCALS then
      fail(p.token.line, "more than %d locals: write values where they are used", MAX_LOCALS)
    end
    next_token(p)
    local name = take(p)
    if not (is_name(name) and skip(p, "=")) then
      unexpected(name, "a local is written as local burst = 40")
    end
    p.locals[name.text] = value(p, take(p))
    skip(p, ";")
  end
  local begin = take(p)
  if begin.text == "" then
    return nil, begin.line
  elseif begin.text == "{" then
    fail(begin.line, "a policy begins with return: return { rules = { {...} } }")
  elseif begin.text ~= "return" then
    unexpected(begin, "a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }")
  end
  local result = value(p, take(p))
  skip(p, ";")
  if p.token.text ~= "" then
    unexpected(p.token, "a policy ends with the value that it returns")
  end
  return result, begin.line
end

-- parse(source) -> the returned value, its line, and lines[table][key] for each table in it; or nil, line, nil, message
function _M.parse(source)
  if #source > MAX_SIZE then
    return nil, 0, nil, ("larger than %d bytes: a policy is a few rules"):format(MAX_SIZE)
  end
  local lone = find(source, "\r[^\n]") or find(source, "\r$")
  if lone then
    local line = 1 + select(2, sub(source, 1, lone):gsub("\n", ""))
    return nil, line, nil, "a carriage return without a line feed: end lines as on Unix or Windows"
  end
  local at = match(source, "^\239\187\191()") or 1 -- behind a byte order mark
  local p = { source = source, at = at, line = 1, depth = 0, locals = {}, lines = {} }
  local ok, result, line = pcall(policy, p)
  if ok then
    return result, line, p.lines
  elseif type(result) ~= "table" then
    error(result, 0)
  end
  return nil, result.line, nil, result.message
end

return _M
