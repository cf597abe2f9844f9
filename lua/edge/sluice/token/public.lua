-- Signatures that are verified with a public key: Ed25519, and RSA with PKCS #1 v1.5 and SHA-256.

local crypto = require "sluice.token.crypto"
local ffi = require "ffi"

local char = string.char
local floor = math.floor

local ED25519 = 1087 -- NID_ED25519

local ctx = ffi.gc(crypto.sluice_EVP_MD_CTX_new(), crypto.sluice_EVP_MD_CTX_free)

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

-- A number begins with a zero byte when its first bit would be read as a sign.
local function integer(bytes)
  return der(0x02, (bytes:byte() >= 128 and "\0" or "") .. bytes)
end

-- rsaEncryption, with NULL parameters
local RSA_ENCRYPTION = der(0x30, der(0x06, "\42\134\72\134\247\13\1\1\1") .. der(0x05, ""))

-- rsa(n, e) -> key; or nil. n, e: big-endian numbers without leading zeros
function _M.rsa(n, e)
  local spki = der(0x30, RSA_ENCRYPTION .. der(0x03, "\0" .. der(0x30, integer(n) .. integer(e))))
  local at = ffi.new("const unsigned char *[1]", ffi.cast("const unsigned char *", spki))
  local pkey = owned(crypto.sluice_d2i_PUBKEY(nil, at, #spki))
  return pkey and { pkey = pkey, md = crypto.sluice_EVP_sha256(), bytes = #n }
end

-- verify(key, text, signature) -> whether the signature of the text was made with this key
function _M.verify(key, text, signature)
  if #signature ~= key.bytes then
    return false
  end
  crypto.sluice_EVP_MD_CTX_reset(ctx)
  if crypto.sluice_EVP_DigestVerifyInit(ctx, nil, key.md, nil, key.pkey) == 1
    and crypto.sluice_EVP_DigestVerify(ctx, signature, #signature, text, #text) == 1 then
    return true
  end
  -- libcrypto queues its errors, and nginx's TLS would take this one for its own.
  crypto.sluice_ERR_clear_error()
  return false
end

return _M
