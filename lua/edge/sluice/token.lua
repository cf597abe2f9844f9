-- Verifies the JWTs that name a buyer. Nothing that a client sends selects how it is verified: kid and alg together
-- name one of our keys, or none, and each key has one algorithm. No claim is read before the signature is verified. The
-- reason of a refusal goes to the log and not to the client. internal/token decides the same for every token.

local base64url = require "sluice.token.base64url"
local cache = require "sluice.token.cache"
local json = require "sluice.json"
local jws = require("sluice.accel").select("jws", "sluice.token.jws")
local keys = require "sluice.token.keys"

local sub, byte, lower = string.sub, string.byte, string.lower
local decode = base64url.decode
local type = type

local SPACE, BEARER = 32, 6 -- the letters of "Bearer"

-- Members of a header that would change how a token is read, or that bring a key.
local REFUSED = { "crit", "b64", "zip", "enc", "jwk", "jku", "x5c", "x5u" }

-- Types of tokens, in lower case: JWT, and access tokens of RFC 9068.
local TYPES = { jwt = true, ["at+jwt"] = true, ["application/at+jwt"] = true }

-- The keys that the first segments of good tokens have named, by the segment as it was sent. Issuers use a handful of
-- them.
local MAX_HEADERS = 64
local known_headers, headers = {}, 0

local UNKNOWN = "no key of this kid and alg"

local set -- keys by alg and kid

-- UNKNOWN_KEY: the reason of verify for a token of a key that is not in use
local _M = { UNKNOWN_KEY = "header: " .. UNKNOWN }

-- use(by) -> the previous set of keys. by: the new one, see keys.set. It clears the verified cache.
function _M.use(by)
  local before = set
  set = by
  cache.clear()
  known_headers, headers = {}, 0
  return before
end

-- init(secret, path): call it in init_by_lua. One of the two may be missing. Raises an error of one line.
function _M.init(secret, path)
  local list, err
  if path and path ~= "" then
    list, err = keys.read(path)
    if not list then
      error(err, 0)
    end
    for _, key in ipairs(err) do
      ngx.log(ngx.WARN, path, ": ", key, ", so it is skipped")
    end
    for _, key in ipairs(list) do
      if key.private then
        ngx.log(ngx.WARN, path, ": key ", key.position, " has a private part, which no edge needs")
      end
    end
  end
  local by
  by, err = keys.set(secret, list)
  _M.use(by or error(err, 0))
end

-- names() -> the names of the keys in use, "ALG KID"
function _M.names()
  local names = {}
  for alg, by_kid in pairs(set) do
    if alg ~= "Ed25519" then -- another name of EdDSA
      for kid in pairs(by_kid) do
        names[#names + 1] = kid == "" and alg or alg .. " " .. kid
      end
    end
  end
  table.sort(names)
  return names
end

-- key_for(segment) -> the key that the first segment of a token names; or nil, err
local function key_for(segment)
  local text = decode(segment)
  if not text then
    return nil, "not base64url"
  end
  local header, err = json.object(text)
  if not header then
    return nil, err
  end
  for i = 1, #REFUSED do
    if header[REFUSED[i]] ~= nil then
      return nil, REFUSED[i]
    end
  end
  local alg, kid, typ = header.alg, header.kid, header.typ
  if typ ~= nil and not (type(typ) == "string" and TYPES[lower(typ)]) then
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
    return nil, UNKNOWN
  end
  return key
end

local function remember_header(header, key)
  if headers >= MAX_HEADERS then
    known_headers, headers = {}, 0
  end
  known_headers[header], headers = key, headers + 1
end

-- check(text, first, now) -> subject, expiry; or nil, err. See verify
local function check(text, first, now)
  local header, err = jws.open(text, first)
  if not header then
    return nil, err
  end
  local key = known_headers[header]
  local known = key
  if not known then
    local fault
    key, fault = key_for(header)
    if not key then
      return nil, "header: " .. fault
    end
  end
  if not jws.is_signed(key) then
    return nil, "signature"
  end
  if not known then
    remember_header(header, key)
  end
  local subject, expiry, from = jws.claims()
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

-- cached(authorization, now) -> the subject of the token in this header Authorization, when the verified cache has it;
-- or nil. It costs one lookup. now: seconds since 1970. The cache also has tokens of the header `token`. An
-- Authorization without a space after the scheme may be such a token, so it is not looked up.
function _M.cached(authorization, now)
  return byte(authorization, BEARER + 1) == SPACE and cache.get(authorization, now) or nil
end

-- verify(text, now, first) -> subject; or nil, err. text: a token, or a header Authorization in which the token begins
-- at byte `first`, a number above 1. now: seconds since 1970. The cache has both whole headers Authorization and
-- tokens. A text without `first` that has the form of such a header is no token, so it is not looked up.
function _M.verify(text, now, first)
  local known = (first or byte(text, BEARER + 1) ~= SPACE) and cache.get(text, now)
  if known then
    return known
  end
  local subject, expiry = check(text, first or 1, now)
  if not subject then
    return nil, expiry
  end
  if not cache.is_new(text) then
    cache.set(text, subject, expiry)
  end
  return subject
end

-- find(authorization, token) -> text, first: for verify; or nil: no token. The header `token` counts only where there
-- is no Authorization.
function _M.find(authorization, token)
  if authorization and authorization ~= "" then
    if byte(authorization, BEARER + 1) ~= SPACE or lower(sub(authorization, 1, BEARER)) ~= "bearer" then
      return nil
    end
    local first = BEARER + 2
    while byte(authorization, first) == SPACE do
      first = first + 1
    end
    return authorization, first
  end
  if token and token ~= "" then
    return token
  end
end

return _M
