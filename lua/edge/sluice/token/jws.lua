-- A signed token in its compact form (JWS, RFC 7515): header, payload and signature in base64url, with dots between
-- them. One token is open at a time.

local base64url = require "sluice.token.base64url"
local claims = require "sluice.token.claims"
local hmac = require "sluice.token.hmac"
local public = require "sluice.token.public"

local find, sub = string.find, string.sub
local decode, encode = base64url.decode, base64url.encode

local MAX_TOKEN = 4096 -- bytes

local _M = { MAX_TOKEN = MAX_TOKEN, TOO_LONG = "longer than " .. MAX_TOKEN .. " bytes" }

-- The text with the open token, where the token begins, and where its dots are.
local text, start, first, second = "", 1, 0, 0

-- open(whole, from) -> the header as it was sent; or nil, err. The token is the end of a text, from byte `from` on.
function _M.open(whole, from)
  if #whole - from >= MAX_TOKEN then
    return nil, _M.TOO_LONG
  end
  local a = find(whole, ".", from, true)
  local b = a and find(whole, ".", a + 1, true)
  if not b or find(whole, ".", b + 1, true) then
    return nil, "not three segments"
  end
  text, start, first, second = whole, from, a, b
  return (sub(whole, from, a - 1))
end

-- is_signed(key) -> whether the signature is this key's. For an HMAC, the encoded texts are compared, so that only the
-- canonical encoding is accepted.
function _M.is_signed(key)
  local signed, signature = sub(text, start, second - 1), sub(text, second + 1)
  if key.hmac then
    local mac = hmac.sum(key.hmac, signed)
    return mac ~= nil and hmac.equal(encode(mac), signature)
  end
  local bytes = decode(signature)
  return bytes ~= nil and public.verify(key, signed, bytes)
end

-- claims() -> sub, exp, nbf or nil; or nil, err. Call it for a token whose signature is verified.
function _M.claims()
  local payload = decode(sub(text, first + 1, second - 1))
  if not payload then
    return nil, "not base64url"
  end
  return claims.read(payload)
end

return _M
