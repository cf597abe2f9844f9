-- Reads a JWK Set (RFC 7517): the keys that verify the tokens of buyers. The type of a key determines its one
-- algorithm. internal/token/jwk.go reads the same files with the same result and the same error messages.

local base64url = require "sluice.token.base64url"
local hmac = require "sluice.token.hmac"
local json = require "sluice.json"
local public = require "sluice.token.public"

local byte, sub, find, gsub, format = string.byte, string.sub, string.find, string.gsub, string.format

local MAX_FILE = 262144 -- bytes
local MAX_KEYS = 100
local MAX_KID = 255
local MIN_SECRET, MAX_SECRET = 32, 1024 -- bytes
local MIN_RSA, MAX_RSA = 2048, 8192 -- bits
local MIN_E, MAX_E = 65537, 2147483647

local NOT_AN_OBJECT = "not a JSON object in UTF-8 without repeated names"

-- The encodings of the points of small order, without the top bit: 0, 1, the two of order 8, p-1, p and p+1. For such a
-- key a signature that is valid for any text is easy to find.
local SMALL_ORDER = {}
for _, hex in ipairs {
  ("00"):rep(32), "01" .. ("00"):rep(31),
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "ec" .. ("ff"):rep(30) .. "7f", "ed" .. ("ff"):rep(30) .. "7f", "ee" .. ("ff"):rep(30) .. "7f",
} do
  SMALL_ORDER[gsub(hex, "%x%x", function(digits) return string.char(tonumber(digits, 16)) end)] = true
end

local _M = {}

local function is_list(v)
  return type(v) == "table" and getmetatable(v) == json.array
end

local function has(list, item)
  for _, v in ipairs(list) do
    if v == item then
      return true
    end
  end
  return false
end

-- valid_kid(v): text of 1 to 255 bytes without control characters
function _M.valid_kid(v)
  return type(v) == "string" and v ~= "" and #v <= MAX_KID and not find(v, "%c") and not find(v, "\194[\128-\159]")
end

-- bytes_of(v) -> the bytes of a base64url text; "" if v is anything else
local function bytes_of(v)
  return type(v) == "string" and base64url.decode(v) or ""
end

-- number_of(v) -> a big-endian number without zeros in front, its bits; "" for nothing
local function number_of(v)
  local n = gsub(bytes_of(v), "^%z+", "")
  local bits, first = 8 * #n, byte(n)
  while first and first < 128 do
    bits, first = bits - 1, first * 2
  end
  return n, bits
end

local function is_odd(n)
  return (byte(n, #n) or 0) % 2 == 1
end

-- The algorithms for each kty, and the crv. The first one is that of a key without alg.
local KINDS = {
  oct = { algs = { "HS256" } },
  OKP = { crv = "Ed25519", algs = { "EdDSA", "Ed25519" } },
  EC = { crv = "P-256", algs = { "ES256" } },
  RSA = { algs = { "RS256", "PS256" } },
}

local READ = {}

function READ.HS256(key)
  local secret = bytes_of(key.k)
  if #secret < MIN_SECRET or #secret > MAX_SECRET then
    return nil, format("k must be base64url of %d to %d bytes", MIN_SECRET, MAX_SECRET)
  end
  return { hmac = hmac.new(secret) }
end

function READ.EdDSA(key)
  local x = bytes_of(key.x)
  if #x ~= 32 then
    return nil, "x must be base64url of 32 bytes"
  end
  if SMALL_ORDER[sub(x, 1, 31) .. string.char(byte(x, 32) % 128)] then
    return nil, "x is a point of small order: signatures can be forged"
  end
  return public.ed25519(x) or error("libcrypto has no Ed25519", 0)
end

function READ.ES256(key)
  local x, y = bytes_of(key.x), bytes_of(key.y)
  if #x ~= 32 or #y ~= 32 then
    return nil, "x and y must be base64url of 32 bytes"
  end
  local made = public.p256(x, y)
  if not made then
    return nil, "x and y are not a point of P-256"
  end
  return made
end

local function read_rsa(key, is_pss)
  local n, bits = number_of(key.n)
  if bits < MIN_RSA or bits > MAX_RSA or not is_odd(n) then
    return nil, format("n must be base64url of an odd number of %d to %d bits", MIN_RSA, MAX_RSA)
  end
  local e, value = number_of(key.e), 0
  for i = 1, #e do
    value = value * 256 + byte(e, i)
  end
  if value < MIN_E or value > MAX_E or not is_odd(e) then
    return nil, format("e must be base64url of an odd number from %d to %d", MIN_E, MAX_E)
  end
  return public.rsa(n, e, is_pss) or error("libcrypto has no RSA", 0)
end

function READ.RS256(key)
  return read_rsa(key, false)
end

function READ.PS256(key)
  return read_rsa(key, true)
end

-- alg_of(key) -> the algorithm of a key; or nil, err; or nil, nil, the name of a member whose value is not supported
local function alg_of(key)
  if type(key.kty) ~= "string" then
    return nil, "kty must be EC, OKP, RSA or oct"
  end
  local kind = KINDS[key.kty]
  if not kind then
    return nil, nil, "kty"
  end
  if kind.crv and key.crv ~= kind.crv then
    if type(key.crv) ~= "string" then
      return nil, "crv must be " .. kind.crv
    end
    return nil, nil, "crv"
  end
  local alg = key.alg
  if alg == nil or alg == "Ed25519" and key.kty == "OKP" then
    return kind.algs[1]
  elseif has(kind.algs, alg) then
    return alg
  elseif type(alg) ~= "string" or READ[alg] or alg == "Ed25519" then
    return nil, format("alg must be %s, as its kty says", table.concat(kind.algs, " or "))
  end
  return nil, nil, "alg"
end

-- parse_key(key) -> key; false when it is not for signatures; or nil, err; or nil, nil, the name of a member whose
-- value is not supported
local function parse_key(key)
  if type(key) ~= "table" or key == json.null or is_list(key) then
    return nil, "not an object"
  end
  if key.use == "enc" then
    return false
  end
  if key.use ~= nil and key.use ~= "sig" then
    return nil, "use must be sig or enc"
  end
  if key.key_ops ~= nil then
    if not is_list(key.key_ops) then
      return nil, "key_ops must be a list"
    end
    if not has(key.key_ops, "verify") and not has(key.key_ops, "sign") then
      return false
    end
  end
  local alg, err, unsupported = alg_of(key)
  if not alg then
    return nil, err, unsupported
  end
  local made
  made, err = READ[alg](key)
  if not made then
    return nil, err
  end
  made.alg, made.private = alg, alg ~= "HS256" and key.d ~= nil
  if key.kid ~= nil and not _M.valid_kid(key.kid) then
    return nil, format("kid must be text of 1 to %d bytes without control characters", MAX_KID)
  end
  made.kid = key.kid or ""
  return made
end

-- parse(text) -> list of keys, and of descriptions of the keys that are skipped because their kind is not supported; or
-- nil, err. The error quotes nothing of the text.
function _M.parse(text)
  if #text > MAX_FILE then
    return nil, "longer than " .. MAX_FILE .. " bytes"
  end
  local set = json.object(text)
  if not set then
    return nil, NOT_AN_OBJECT
  end
  if not is_list(set.keys) or #set.keys == 0 then
    return nil, '"keys" must be a list of one key at least'
  end
  if #set.keys > MAX_KEYS then
    return nil, "more than " .. MAX_KEYS .. " keys"
  end
  local keys, skipped, kids, count = {}, {}, {}, {}
  for i, object in ipairs(set.keys) do
    local key, err, unsupported = parse_key(object)
    if err then
      return nil, format("key %d: %s", i, err)
    end
    if unsupported then
      local kid = _M.valid_kid(object.kid) and ' (kid "' .. object.kid .. '")' or ""
      skipped[#skipped + 1] = format("key %d%s: its %s is not supported", i, kid, unsupported)
    elseif key then
      if key.kid ~= "" and kids[key.kid] then
        return nil, format("key %d: its kid is used twice", i)
      end
      key.position, kids[key.kid], count[key.alg] = i, true, (count[key.alg] or 0) + 1
      keys[#keys + 1] = key
    end
  end
  for _, key in ipairs(keys) do
    if key.kid == "" and count[key.alg] > 1 then
      return nil, format("key %d: needs a kid, because it is not the only one for %s", key.position, key.alg)
    end
  end
  if #keys == 0 then
    return nil, "no key for signatures"
  end
  return keys, skipped
end

-- set(secret, keys) -> a table of keys by alg and kid; or nil, err. secret: the HS256 key without a kid, or nil or ""
-- for none. keys: of parse, or nil
function _M.set(secret, keys)
  local by = { HS256 = {}, RS256 = {}, PS256 = {}, ES256 = {}, EdDSA = {} }
  by.Ed25519 = by.EdDSA -- another name (RFC 9864)
  for _, key in ipairs(keys or {}) do
    by[key.alg][key.kid] = key
  end
  secret = secret or ""
  if keys and secret == "" then
    return by
  end
  if #secret < MIN_SECRET then
    return nil, format("SLUICE_TOKEN_SECRET must have at least %d bytes, and has %d", MIN_SECRET, #secret)
  end
  if by.HS256[""] then
    return nil, "the token secret and a key without a kid are both for HS256: give the key a kid"
  end
  by.HS256[""] = { alg = "HS256", kid = "", hmac = hmac.new(secret) }
  return by
end

-- text(path) -> the text of a file, of which at most one byte more is read than is allowed; or nil, err
function _M.text(path)
  local file, why = io.open(path, "rb")
  if not file then
    return nil, why
  end
  local text
  text, why = file:read(MAX_FILE + 1)
  file:close()
  if why then
    return nil, path .. ": " .. why
  end
  return text or ""
end

-- read(path) -> list of keys, list of descriptions of those that are skipped; or nil, err, which names the file
function _M.read(path)
  local text, err = _M.text(path)
  if not text then
    return nil, err
  end
  local keys, skipped = _M.parse(text)
  if not keys then
    return nil, path .. ": " .. skipped
  end
  return keys, skipped
end

return _M
