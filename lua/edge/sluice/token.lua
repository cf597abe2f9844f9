-- Verifies the HS256 JWTs that name a buyer. Nothing a client sends chooses how it is checked: the algorithm is pinned, the signature
-- is checked first, over the raw bytes, and only a text that the secret has signed is read at all. Why a token was refused is for the
-- log; clients are told nothing.

local ffi = require "ffi"
local base64 = require "ngx.base64"
local json = require "sluice.json"

local C = ffi.C
local decode_base64url, encode_base64url = base64.decode_base64url, base64.encode_base64url
local find, sub, byte, lower = string.find, string.sub, string.byte, string.lower
local crc32 = ngx.crc32_long
local type = type

ffi.cdef [[
const void *sluice_EVP_sha256(void) __asm__("EVP_sha256");
unsigned char *sluice_HMAC(const void *md, const void *key, int key_length, const char *data, size_t length,
  unsigned char *out, unsigned int *out_length) __asm__("HMAC");
int sluice_CRYPTO_memcmp(const void *a, const void *b, size_t length) __asm__("CRYPTO_memcmp");
]]

local SPACE = 32

local MIN_SECRET = 32
local MAX_TOKEN = 4096
local MAX_SUBJECT = 255
local MAC = 32

-- Control characters in UTF-8: ASCII's, and U+0080 to U+009F.
local CONTROL, CONTROL_C1 = "%c", "\194[\128-\159]"

-- Times are seconds since 1970. Beyond 2^53 neighbouring whole numbers run together, and some readers overflow.
local MAX_TIME = 9007199254740992

-- Tokens remembered by one worker, each in the place of its checksum: a newer one takes an older one's place, and memory is bounded, at 3 MB or so
-- for tokens of the usual size.
local PLACES = 8192
local MAX_REMEMBERED = 1024 -- bytes of a token
local known_raw, known_subject, known_expiry = {}, {}, {}

local crypto -- what holds libcrypto's functions
local sha256, secret
local mac, mac_length = ffi.new("unsigned char[64]"), ffi.new("unsigned int[1]")

local _M = {}

-- nginx links libcrypto, so its functions are usually to be found in the process itself.
local function libcrypto()
  for _, name in ipairs { "", "libcrypto.so.3", "libcrypto.so.1.1", "crypto" } do
    local ok, lib = pcall(function()
      local l = name == "" and C or ffi.load(name)
      return l.sluice_HMAC and l.sluice_EVP_sha256 and l.sluice_CRYPTO_memcmp and l
    end)
    if ok and lib then
      return lib
    end
  end
  error("libcrypto was not found: this nginx is built without OpenSSL", 0)
end

-- init(key): call from init_by_lua. Errors when the secret is missing or too short.
function _M.init(key)
  if type(key) ~= "string" or #key < MIN_SECRET then
    error("SLUICE_TOKEN_SECRET must have at least " .. MIN_SECRET .. " bytes, and has " .. (key and #key or 0), 0)
  end
  crypto = libcrypto()
  sha256 = crypto.sluice_EVP_sha256()
  secret = key
end

-- segment(text) -> bytes, or nil. Only the one canonical spelling is taken: with lenient decoding a token has many spellings.
local function segment(text)
  local bytes = decode_base64url(text)
  if not bytes or encode_base64url(bytes) ~= text then
    return nil
  end
  return bytes
end

local function signed(text, signature)
  if #signature ~= MAC then
    return false
  end
  if crypto.sluice_HMAC(sha256, secret, #secret, text, #text, mac, mac_length) == nil or mac_length[0] ~= MAC then
    return false
  end
  return crypto.sluice_CRYPTO_memcmp(mac, signature, MAC) == 0
end

local function is_time(t)
  return type(t) == "number" and t >= 0 and t < MAX_TIME
end

local function header_fault(text)
  local header, err = json.object(text)
  if not header then
    return err
  end
  if header.alg ~= "HS256" then
    return "alg"
  end
  if header.crit ~= nil or header.enc ~= nil then
    return "crit or enc"
  end
  if header.typ ~= nil and (type(header.typ) ~= "string" or lower(header.typ) ~= "jwt") then
    return "typ"
  end
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
  local signature = segment(sub(raw, second + 1))
  if not signature or not signed(sub(raw, 1, second - 1), signature) then
    return nil, "signature"
  end
  local header, payload = segment(sub(raw, 1, first - 1)), segment(sub(raw, first + 1, second - 1))
  if not header or not payload then
    return nil, "not base64url"
  end
  local fault = header_fault(header)
  if fault then
    return nil, "header: " .. fault
  end
  local claims, err = json.object(payload)
  if not claims then
    return nil, "claims: " .. err
  end
  local expiry, from, subject = claims.exp, claims.nbf, claims.sub
  if not is_time(expiry) then
    return nil, "exp"
  end
  if now >= expiry then
    return nil, "expired"
  end
  if from ~= nil and (not is_time(from) or now < from) then
    return nil, "nbf"
  end
  if type(subject) ~= "string" or subject == "" or #subject > MAX_SUBJECT or find(subject, CONTROL) or find(subject, CONTROL_C1) then
    return nil, "sub"
  end
  return subject, expiry
end

-- verify(raw, now) -> subject; or nil, why. now: seconds since 1970.
-- A token that was good is remembered by its whole text and until it expires: buyers in a hurry come again and again.
function _M.verify(raw, now)
  local place = crc32(raw) % PLACES
  if known_raw[place] == raw and now < known_expiry[place] then
    return known_subject[place]
  end
  local subject, expiry = check(raw, now)
  if not subject then
    return nil, expiry
  end
  if #raw <= MAX_REMEMBERED then
    known_raw[place], known_subject[place], known_expiry[place] = raw, subject, expiry
  end
  return subject
end

-- from_headers(authorization, token) -> raw token, or nil. A Bearer token in Authorization wins over the header `token`.
function _M.from_headers(authorization, token)
  if authorization then
    if byte(authorization, 7) == SPACE and lower(sub(authorization, 1, 6)) == "bearer" then
      local start = 8
      while byte(authorization, start) == SPACE do
        start = start + 1
      end
      return sub(authorization, start)
    end
    return nil
  end
  if token and token ~= "" then
    return token
  end
end

return _M
