-- The rewrite phase: the first thing that is done with every request, before nginx looks for a location. Is it well written, and whose is it? And
-- is it one of a flood: a purchase of a sale that refuses everybody, or a request of one who is over a limit? Such a request is answered by
-- snippets/refuse.conf and goes no further: no coroutine is made for it, no location looked for, no header set from Lua.
--
-- It is one call, and its steps are nearly always without a loop: LuaJIT compiles each in one piece.

local access = require "sluice.access"
local client = require "sluice.client"
local ffi = require "ffi"
local head = require "sluice.head"
local known = require "sluice.known"
local look = require("sluice.head.plain").look
local request = require "sluice.request"
local request_id = require "sluice.request_id"
local step = require "sluice.step"

local is_state = known.is_state
local find, length_of, same, set_at = request.find, request.length, request.same, request.set_at
local write_next = request_id.write_next
local name = client.name
local ngx_var = ngx.var
local get_method = ngx.req.get_method
local is_internal = ngx.req.is_internal
local byte = string.byte
local ffi_string = ffi.string
local tonumber = tonumber

local DOT = 46
local MAX_BODY = 16384 -- bytes, see conf.d/10-hygiene.conf
local URI, ROOM = request.variable "uri", request.variable "sluice_room"
local SIZE = request_id.SIZE

-- What a badly written head is refused with, by the status that head.lua gives.
local REFUSED = { ["400"] = "malformed", ["431"] = "too_large" }

-- The second letters of the paths that no limit looks at, see $sluice_unlimited: other paths need not be compared with them.
local OWN = {}
for letter in ("AaDdHhMm."):gmatch(".") do
  OWN[byte(letter)] = true
end

-- What follows from a request line alone, by the line. It is kept of lines that were found to be even (see $sluice_odd_line), each with the host
-- it came with, and bounded, at half a megabyte or so.
--   text      the line
--   path      decoded, without a query
--   purchase  whether it may be one
--   limited   whether limits look at it
--   plan      which, see access.plan_of
--   host      of the last request with this line
--   idle      when its sale had nothing to be repeated, see known.judge
local MOST_LINES, MAX_LINE = 1024, 128
local kept, lines = {}, 0

local _M = {}

-- The request at hand, from one step of judge to the next; of no use once this worker has yielded.
-- line: as above. plain: see head/plain.lua, or nil. good: whether the request, whose head is well written, is one that nginx would not refuse
-- further on. key_length: how many bytes of `name` are what counts as one client.
local line, plain, good, key_length = { text = "" }, nil, nil, nil

local function path_of()
  return ngx_var.uri
end

-- limited(path) -> whether limits look at it
local function limited(path)
  return not OWN[byte(path, 2)] or ngx_var.sluice_unlimited ~= "1"
end

-- read(text) -> the line, worked out
local function read(text)
  local path, method = path_of(), get_method()
  return { text = text, path = path, purchase = method == "POST", limited = limited(path), plan = access.plan_of(method, path_of), idle = 0 }
end

local function keep(host)
  if not kept[line.text] then
    if lines >= MOST_LINES then
      kept, lines = {}, 0
    end
    kept[line.text], lines = line, lines + 1
  end
  line.host = host
end

-- fits() -> whether nginx would take the body
local function fits()
  if plain and plain.body_digits <= 4 then
    return true
  end
  local length = ngx_var.content_length
  return not (length and #length > 4 and tonumber(length) > MAX_BODY) and (plain or not ngx_var.http_transfer_encoding)
end

-- even() -> whether readers agree about the request line and the host
local function even()
  if not plain or plain.host == nil then
    return ngx_var.sluice_odd_line == "0"
  end
  if line.host and same(plain.host, plain.host_length, line.host) then
    return true
  elseif ngx_var.sluice_odd_line ~= "0" then
    return false
  end
  if #line.text <= MAX_LINE and plain.host_length <= MAX_LINE then
    keep(ffi_string(plain.host, plain.host_length))
  end
  return true
end

-- recall(value): finds the line of the request; most come again and again
local function recall(value)
  local n = length_of(value)
  if not same(value.data, n, line.text) then
    local text = ffi_string(value.data, n)
    line = kept[text] or read(text)
  end
end

-- number(): says the request's number, in memory that it has for that. Only dots are written over. Where somebody's own configuration sets that
-- variable to a text with no variable in it, the memory is the configuration's, and holds another request's number, which may have still to be told.
local function number()
  local room = find(ROOM)
  if room and length_of(room) >= SIZE and room.data[0] == DOT then
    write_next(room.data)
    set_at("sluice_request_id", room.data, SIZE)
  end
end

-- arrive -> what judge answers, if the request is no more to be looked at; or nil
local arrive = step(function()
  local value = request.arrive()
  if is_internal() then
    local uri = find(URI)
    if length_of(uri) > 1 and uri.data[1] == DOT then -- nginx itself goes to /.sluice
      return "own"
    end
  end
  known.begin()
  number()
  if not value then
    return "malformed"
  end
  plain = look(value)
  local fault = not plain and head.judge()
  if fault then
    return REFUSED[fault]
  end
end)

-- settle -> what judge answers, if no limit refuses the request: who and what it is, is known then; or nil: known.judge must be asked
local settle = step(function()
  key_length = client.settle(plain)
  recall(request.line())
  good = fits() and even()
  if line.purchase then
    return known.glance(line)
  end
  return ""
end)

-- state -> what known.judge says
local state = step(function()
  return known.judge(line, plain, good)
end)

-- over -> whether a limit refuses it
local over = step(function()
  if access.over(line.plan, name, plain) then
    known.begin()
    return true
  end
end)

-- pass: the request goes on
local pass = step(function()
  ngx_var.sluice_key = ffi_string(name.bytes, key_length)
end)

-- judge() -> $sluice_judged:
--   malformed, too_large   the head is badly written; nothing else is known then
--   own                    nginx itself goes where no client may
--   a state                of the sale, see known.lua: it is to be told
--   over                   a limit refuses the request, see access.over
--   all else               what known.judge says of a purchase, or "". What counts as one client is in $sluice_key.
function _M.judge()
  local answer = #arrive
  if answer then
    return answer
  end
  local judged = #settle
  if not judged then
    judged = #state
    if is_state(judged) then
      return judged
    end
  end
  if good and line.limited and #over then
    return "over"
  end
  local _ = #pass
  return judged
end

jit.off(_M.judge)

return _M
