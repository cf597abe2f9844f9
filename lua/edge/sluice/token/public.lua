-- Signatures that are verified with a public key: Ed25519, and with SHA-256 P-256, RSA with PKCS #1 v1.5 and RSA with
-- PSS.

local crypto = require "sluice.token.crypto"
local ffi = require "ffi"

local byte, char, gsub, sub = string.byte, string.char, string.gsub, string.sub
local floor = math.floor

local ED25519 = 1087 -- NID_ED25519

-- Of openssl/rsa.h: commands of a context, and their values for PSS with a salt as long as the digest.
local SET_PADDING, SET_SALT_LENGTH, ANY = 0x1001, 0x1002, -1
local PSS, AS_DIGEST = 6, -1

local COORDINATE = 32 -- bytes of a number of P-256

local ctx = ffi.gc(crypto.sluice_EVP_MD_CTX_new(), crypto.sluice_EVP_MD_CTX_free)
local pkey_ctx = ffi.new("void *[1]") -- of the verification that was begun

local _M = {}

local function owned(pkey)
  if pkey == nil then
    crypto.sluice_ERR_clear_error()
    return nil
  end
  return ffi.gc(pkey, crypto.sluice_EVP_PKEY_free)
end

-- ed25519(x) -> key; or nil. x: the 32 bytes of the public key
function _M.ed25519(x)
  local pkey = owned(crypto.sluice_EVP_PKEY_new_raw_public_key(ED25519, nil, x, #x))
  return pkey and { pkey = pkey, bytes = 64 }
end

-- der(tag, content) -> one element of ASN.1
local function der(tag, content)
  local n = #content
  local length
  if n < 128 then
    length = char(n)
  elseif n < 256 then
    length = char(0x81, n)
  else
    length = char(0x82, floor(n / 256), n % 256)
  end
  return char(tag) .. length .. content
end

-- A number begins with a zero byte when its first bit would be read as a sign. bytes: without leading zeros
local function integer(bytes)
  return der(0x02, (byte(bytes) >= 128 and "\0" or "") .. bytes)
end

-- number(bytes) -> an integer that may begin with zeros, or be zero
local function number(bytes)
  local n = gsub(bytes, "^%z+", "")
  return n == "" and der(0x02, "\0") or integer(n)
end

-- from_spki(spki) -> pkey; or nil. spki: a SubjectPublicKeyInfo (RFC 5280)
local function from_spki(spki)
  local at = ffi.new("const unsigned char *[1]", ffi.cast("const unsigned char *", spki))
  return owned(crypto.sluice_d2i_PUBKEY(nil, at, #spki))
end

-- rsaEncryption, with NULL parameters
local RSA_ENCRYPTION = der(0x30, der(0x06, "\42\134\72\134\247\13\1\1\1") .. der(0x05, ""))

-- rsa(n, e, is_pss) -> key; or nil. n, e: big-endian numbers without leading zeros
function _M.rsa(n, e, is_pss)
  local pkey = from_spki(der(0x30, RSA_ENCRYPTION .. der(0x03, "\0" .. der(0x30, integer(n) .. integer(e)))))
  return pkey and { pkey = pkey, md = crypto.sluice_EVP_sha256(), bytes = #n, is_pss = is_pss }
end

-- id-ecPublicKey with prime256v1
local P256 = der(0x30, der(0x06, "\42\134\72\206\61\2\1") .. der(0x06, "\42\134\72\206\61\3\1\7"))

-- p256(x, y) -> key; or nil: they are not a point of the curve. x, y: 32 bytes each
function _M.p256(x, y)
  local pkey = from_spki(der(0x30, P256 .. der(0x03, "\0\4" .. x .. y)))
  return pkey and { pkey = pkey, md = crypto.sluice_EVP_sha256(), bytes = 2 * COORDINATE, is_ecdsa = true }
end

-- begin(key) -> whether a verification with this key was begun
local function begin(key)
  if crypto.sluice_EVP_DigestVerifyInit(ctx, pkey_ctx, key.md, nil, key.pkey) ~= 1 then
    return false
  end
  return not key.is_pss or crypto.sluice_RSA_pkey_ctx_ctrl(pkey_ctx[0], ANY, SET_PADDING, PSS, nil) == 1
    and crypto.sluice_RSA_pkey_ctx_ctrl(pkey_ctx[0], ANY, SET_SALT_LENGTH, AS_DIGEST, nil) == 1
end

-- verify(key, text, signature) -> whether the signature of the text was made with this key
function _M.verify(key, text, signature)
  if #signature ~= key.bytes then
    return false
  end
  if key.is_ecdsa then -- a token has two numbers of the same length, and libcrypto reads ASN.1
    signature = der(0x30, number(sub(signature, 1, COORDINATE)) .. number(sub(signature, COORDINATE + 1)))
  end
  crypto.sluice_EVP_MD_CTX_reset(ctx)
  if begin(key)
    and crypto.sluice_EVP_DigestVerify(ctx, signature, #signature, text, #text) == 1 then
    return true
  end
  -- libcrypto queues its errors, and nginx's TLS would take this one for its own.
  crypto.sluice_ERR_clear_error()
  return false
end

return _M
