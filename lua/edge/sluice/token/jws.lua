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

local token, first, second = "", 0, 0 -- the open token, and where its dots are

-- open(raw) -> the header as it was sent; or nil, err
function _M.open(raw)
  if #raw > MAX_TOKEN then
    return nil, _M.TOO_LONG
  end
  local a = find(raw, ".", 1, true)
  local b = a and find(raw, ".", a + 1, true)
  if not b or find(raw, ".", b + 1, true) then
    return nil, "not three segments"
  end
  token, first, second = raw, a, b
  return (sub(raw, 1, a - 1))
end

-- is_signed(key) -> whether the signature is this key's. Of an HMAC the texts are compared and not the bytes: only the
-- canonical spelling is accepted.
function _M.is_signed(key)
  local text, signature = sub(token, 1, second - 1), sub(token, second + 1)
  if key.hmac then
    local mac = hmac.sum(key.hmac, text)
    return mac ~= nil and hmac.equal(encode(mac), signature)
  end
  local bytes = decode(signature)
  return bytes ~= nil and public.verify(key, text, bytes)
end

-- claims() -> sub, exp, nbf or nil; or nil, err. Call it for a token whose signature is verified.
function _M.claims()
  local text = decode(sub(token, first + 1, second - 1))
  if not text then
    return nil, "not base64url"
  end
  return claims.read(text)
end

return _M
