-- The rewrite phase: the first thing that is done with every request, before nginx looks for a location. Is it well written, and whose is it? And
-- is it one of a flood: a purchase of a sale that refuses everybody, or a request of one who is over a limit? Such a request is answered by
-- snippets/refuse.conf and goes no further: no coroutine is made for it, no location looked for, no header set from Lua.
--
-- It is one call, and its steps are nearly always without a loop: LuaJIT compiles each in one piece.

local access = require "sluice.access"
local client = require "sluice.client"
local head = require "sluice.head"
local known = require "sluice.known"
local look = require("sluice.head.plain").look
local same = require("sluice.head.plain").same
local text_at = require("sluice.address").text_at

local ngx_var = ngx.var
local get_method = ngx.req.get_method
local is_internal = ngx.req.is_internal
local byte = string.byte
local tonumber = tonumber

local DOT = 46
local MAX_BODY = 16384 -- bytes, see conf.d/10-hygiene.conf

-- What a badly written head is refused with, by the status that head.lua gives.
local REFUSED = { ["400"] = "malformed", ["431"] = "too_large" }

-- The second letters of the paths that no limit looks at, see $sluice_unlimited: other paths need not be compared with them.
local OWN = {}
for letter in ("AaDdHhMm."):gmatch(".") do
  OWN[byte(letter)] = true
end

-- Request lines that were found to be even (see $sluice_odd_line), each with the host it came with. It is bounded, at a quarter of a megabyte or so.
local MOST_LINES, MAX_LINE = 1024, 128
local even, lines = {}, 0

local _M = {}

local function remember(request, host)
  if lines >= MOST_LINES then
    even, lines = {}, 0
  end
  if not even[request] then
    lines = lines + 1
  end
  even[request] = host
end

-- odd(request, plain) -> whether readers differ about the request line or the host
local function odd(request, plain)
  if not plain or plain.host == nil then
    return ngx_var.sluice_odd_line ~= "0"
  end
  local known_host = even[request]
  if known_host and same(plain.host, plain.host_length, known_host) then
    return false
  end
  local host = text_at(plain.host, plain.host_length)
  if ngx_var.sluice_odd_line ~= "0" then
    return true
  end
  if #request <= MAX_LINE and #host <= MAX_LINE then
    remember(request, host)
  end
  return false
end

-- sound(request, plain) -> whether the request, whose head is well written, is one that nginx would not refuse further on
local function sound(request, plain)
  if plain and plain.body_digits <= 4 then
    return not odd(request, plain)
  end
  local length = ngx_var.content_length
  if length and #length > 4 and tonumber(length) > MAX_BODY or not plain and ngx_var.http_transfer_encoding then
    return false
  end
  return not odd(request, plain)
end

-- limited(path) -> whether limits look at it
local function limited(path)
  return not OWN[byte(path, 2)] or ngx_var.sluice_unlimited ~= "1"
end

-- The request at hand, from one step of judge to the next; of no use once this worker has yielded.
-- plain: see head/plain.lua, or nil. good: see sound.
local path, request, plain, key, good

-- arrive() -> what judge answers, if the request is no more to be looked at; or nil
local function arrive()
  path = ngx_var.uri
  if byte(path, 2) == DOT and is_internal() then -- nginx itself goes to /.sluice
    return "own"
  end
  known.begin()
  request = ngx_var.request
  plain = look(request)
  local fault = not plain and head.judge()
  if fault then
    return REFUSED[fault]
  end
  key = client.decide(plain)
  good = sound(request, plain)
end

-- pass(): the request goes on
local function pass()
  ngx_var.sluice_key = key
end

-- judge() -> $sluice_judged:
--   malformed, too_large   the head is badly written; nothing else is known then
--   own                    nginx itself goes where no client may
--   a state                of the sale, see known.lua: it is to be told
--   over                   a limit refuses the request, see access.over
--   all else               what known.judge says of a purchase, or "". What counts as one client is in $sluice_key.
--
-- The dots make it a function that LuaJIT interprets: it compiles the steps one by one. In one piece they have more values than it can carry from
-- one trace to the next ("register coalescing too complex"): it would try again and again, and at last interpret what it could compile.
function _M.judge(...)
  local answer = arrive(...)
  if answer then
    return answer
  end
  local judged = ""
  if get_method() == "POST" then
    judged = known.judge(path, request, plain, good)
    if known.is_state(judged) then
      return judged
    end
  end
  if good and limited(path) and access.over(path, key, plain) then
    known.begin()
    return "over"
  end
  pass()
  return judged
end

return _M
