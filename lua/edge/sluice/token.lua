-- Verifies the JWTs that name a buyer. Nothing a client sends chooses how it is checked: kid and alg together name one of our keys, or none, and
-- each key has one algorithm. No claim is read that is not signed. Why a token was refused is for the log; clients are told nothing.
-- internal/token says the same of every token.

local base64url = require "sluice.token.base64url"
local ffi = require "ffi"
local hmac = require "sluice.token.hmac"
local json = require "sluice.json"
local keys = require "sluice.token.keys"
local names = require "sluice.limit.name"
local plain = require "sluice.token.plain"
local public = require "sluice.token.public"
local remembered = require "sluice.token.remembered"

local find, match, sub, byte, lower = string.find, string.match, string.sub, string.byte, string.lower
local ffi_cast, ffi_string = ffi.cast, ffi.string
local decode, encode = base64url.decode, base64url.encode
local plain_claims = plain.claims
local type = type

local recall, remember = remembered.recall, remembered.remember
local SPACE, BEARER = 32, 6 -- a space, and where it is in "Bearer ..."

local MAX_TOKEN = 4096
local MAX_SUBJECT = 255
local MAC_TEXT = 43 -- characters of an HMAC-SHA256

-- Members of a header that would change how a token is read, or that bring a key along.
local REFUSED = { "crit", "b64", "zip", "enc", "jwk", "jku", "x5c", "x5u" }

-- Control characters in UTF-8: ASCII's, and U+0080 to U+009F.
local CONTROL, CONTROL_C1 = "%c", "\194[\128-\159]"

-- Times are seconds since 1970. Beyond 2^53 neighbouring whole numbers run together, and some readers overflow.
local MAX_TIME = 9007199254740992

local nobody = names.new()

-- The key that a good token's first segment, as it was sent, has named. Issuers know a handful; the bound is for the one who makes up new ones.
local MAX_HEADERS = 64
local known_headers, headers = {}, 0

local bytes_of = ffi.typeof("const unsigned char *")
local bytes = ffi.new("unsigned char[?]", MAX_TOKEN) -- of the segment at hand
local mac, mac_text = ffi.new("unsigned char[?]", hmac.BYTES), ffi.new("unsigned char[?]", MAC_TEXT + 1)

local set -- keys by alg and kid

local _M = {}

-- use(by) -> the set before it. by: a set of keys.lua. What was remembered is forgotten.
function _M.use(by)
  local before = set
  set = by
  remembered.forget()
  known_headers, headers = {}, 0
  return before
end

-- init(secret, path): call from init_by_lua. One of the two may be missing. Errors with one line that says what is wrong.
function _M.init(secret, path)
  local list, err
  if path and path ~= "" then
    list, err = keys.read(path)
    if not list then
      error(err, 0)
    end
    for _, key in ipairs(list) do
      if key.private then
        ngx.log(ngx.WARN, path, ": key ", key.place, " holds a private part, which no edge needs")
      end
    end
  end
  local by
  by, err = keys.set(secret, list)
  _M.use(by or error(err, 0))
end

-- signed(key, text, n, signature, length). Of the HMAC it compares the texts and not the bytes: of several spellings only the canonical one is taken.
local function signed(key, text, n, signature, length)
  local ctx = key.hmac
  if ctx then
    return length == MAC_TEXT and hmac.sum(ctx, text, n, mac) and encode(mac, hmac.BYTES, mac_text) == MAC_TEXT
      and hmac.equal(mac_text, signature, MAC_TEXT)
  end
  local bytes_long = decode(signature, length, bytes)
  return bytes_long and public.verify(key, text, n, bytes, bytes_long)
end

local function is_time(t)
  return type(t) == "number" and t >= 0 and t < MAX_TIME
end

-- key_for(text, n) -> the key that the n characters of this first segment name; or nil, why there is none
local function key_for(text, n)
  local length = decode(text, n, bytes)
  if not length then
    return nil, "not base64url"
  end
  local header, err = json.object(ffi_string(bytes, length))
  if not header then
    return nil, err
  end
  for i = 1, #REFUSED do
    if header[REFUSED[i]] ~= nil then
      return nil, REFUSED[i]
    end
  end
  local alg, kid, typ = header.alg, header.kid, header.typ
  if typ ~= nil and (type(typ) ~= "string" or lower(typ) ~= "jwt") then
    return nil, "typ"
  end
  if kid ~= nil and not keys.valid_kid(kid) then
    return nil, "kid"
  end
  local of_alg = type(alg) == "string" and set[alg]
  if not of_alg then
    return nil, "alg"
  end
  local key = of_alg[kid or ""]
  if not key then
    return nil, "no key of this kid and alg"
  end
  return key
end

local function remember_header(header, key)
  if headers >= MAX_HEADERS then
    known_headers, headers = {}, 0
  end
  known_headers[header], headers = key, headers + 1
end

-- claims_of(text, n) -> sub, exp, nbf; or nil, why
local function claims_of(text, n)
  local length = decode(text, n, bytes)
  if not length then
    return nil, "not base64url"
  end
  local subject, expiry, from = plain_claims(bytes, length)
  if subject and subject ~= "" and #subject <= MAX_SUBJECT then
    return subject, expiry, from
  end
  local claims, err = json.object(ffi_string(bytes, length))
  if not claims then
    return nil, "claims: " .. err
  end
  subject, expiry, from = claims.sub, claims.exp, claims.nbf
  if not is_time(expiry) then
    return nil, "exp"
  end
  if claims.iat ~= nil and not is_time(claims.iat) then
    return nil, "iat"
  end
  if from ~= nil and not is_time(from) then
    return nil, "nbf"
  end
  if type(subject) ~= "string" or subject == "" or #subject > MAX_SUBJECT or find(subject, CONTROL) or find(subject, CONTROL_C1) then
    return nil, "sub"
  end
  return subject, expiry, from
end

-- check(raw, now) -> subject, expiry; or nil, why
local function check(raw, now)
  if #raw > MAX_TOKEN then
    return nil, "longer than " .. MAX_TOKEN .. " bytes"
  end
  local first = find(raw, ".", 1, true)
  local second = first and find(raw, ".", first + 1, true)
  if not second or find(raw, ".", second + 1, true) then
    return nil, "not three segments"
  end
  local text = ffi_cast(bytes_of, raw)
  local header = sub(raw, 1, first - 1)
  local key = known_headers[header]
  local known = key
  if not known then
    local fault
    key, fault = key_for(text, first - 1)
    if not key then
      return nil, "header: " .. fault
    end
  end
  if not signed(key, text, second - 1, text + second, #raw - second) then
    return nil, "signature"
  end
  if not known then
    remember_header(header, key)
  end
  local subject, expiry, from = claims_of(text + first, second - first - 1)
  if not subject then
    return nil, expiry
  end
  if now >= expiry then
    return nil, "expired"
  end
  if from and now < from then
    return nil, "nbf"
  end
  return subject, expiry
end

-- recall(text, n, now, whose) -> the subject of the token in this header Authorization, n bytes of a string or of memory, if it is remembered; costs
-- next to nothing. now: seconds since 1970. whose: a name (limit/name.lua) to be made the subject's. What came in the header `token` has no space
-- in it, and is not taken for a Bearer token.
function _M.recall(text, n, now, whose)
  text = ffi.cast(bytes_of, text)
  return n > BEARER and text[BEARER] == SPACE and recall(text, n, now, whose) or nil
end

-- verify(raw, now, whose, authorization) -> subject; or nil, why. now: seconds since 1970; whose: a name to be made the subject's, or nil;
-- authorization: the header that raw came in, if it was that one
function _M.verify(raw, now, whose, authorization)
  local text = authorization or raw
  whose = whose or nobody
  local known = recall(text, #text, now, whose)
  if known then
    return known
  end
  local subject, expiry = check(raw, now)
  if not subject then
    return nil, expiry
  end
  names.buyer(whose, subject)
  remember(text, subject, expiry, whose)
  return subject
end

-- from_headers(authorization, token) -> raw token, or nil. A Bearer token in Authorization wins over the header `token`.
function _M.from_headers(authorization, token)
  if authorization and authorization ~= "" then
    if byte(authorization, 7) == SPACE and lower(sub(authorization, 1, 6)) == "bearer" then
      if byte(authorization, 8) ~= SPACE then
        return sub(authorization, 8)
      end
      return match(authorization, "^ *(.*)", 8)
    end
    return nil
  end
  if token and token ~= "" then
    return token
  end
end

return _M
