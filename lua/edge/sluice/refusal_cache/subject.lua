-- The buyer that a token names, read without verifying the signature: only to find requests of buyers that cannot hold
-- an order. When two readers could read the name differently, it counts as unknown. A forged name of a holder gets a
-- request to the limits and the signature check, and no further.

local base64url = require "sluice.token.base64url"
local jws = require "sluice.token.jws"
local token = require "sluice.token"

local crc32 = ngx.crc32_long
local decode = base64url.decode
local find, lower, sub = string.find, string.lower, string.sub

local FIRST = '{"sub":"' -- how nearly all claims begin

local _M = {}

-- searched(claims) -> as sum, for claims in which the name may be anywhere and in any case
local function searched(claims)
  local _, stop = find(lower(claims), '"sub"', 1, true)
  if not stop or find(lower(claims), '"sub"', stop, true) then
    return nil
  end
  local from, to = find(claims, '^[ \n\r\t]*:[ \n\r\t]*"[^"]*"', stop + 1)
  if not from then
    return nil
  end
  local quote = find(claims, '"', from, true)
  return crc32(sub(claims, quote + 1, to - 1))
end

-- sum(raw) -> the CRC-32 of the subject's bytes; false: no verifier accepts this token; nil: only a verifier can read
-- the subject
function _M.sum(raw)
  if #raw > jws.MAX_TOKEN then
    return false
  end
  local first = find(raw, ".", 1, true)
  local second = first and find(raw, ".", first + 1, true)
  if not second or find(raw, ".", second + 1, true) then
    return false
  end
  local claims = decode(sub(raw, first + 1, second - 1))
  if not claims then
    return false
  end
  if find(claims, "\0", 1, true) or find(claims, "\\", 1, true) then
    return nil
  end
  if sub(claims, 1, #FIRST) == FIRST then
    local stop = find(claims, '"', #FIRST + 1, true)
    -- A second member "sub", in upper or lower case, would end in `b"` or `B"`.
    if stop and not find(claims, 'b"', stop, true) and not find(claims, 'B"', stop, true) then
      return crc32(sub(claims, #FIRST + 1, stop - 1))
    end
  end
  return searched(claims)
end

-- of(headers) -> the same for the token of a request. headers: see head.lua
function _M.of(headers)
  local text, first = token.find(headers.authorization, headers.token)
  return text ~= nil and _M.sum(first and sub(text, first) or text)
end

return _M
