-- HMAC-SHA256. A keyed context is kept and reset for every text: the one-shot HMAC() hashes the key each time and takes
-- four times as long.

local crypto = require "sluice.token.crypto"
local ffi = require "ffi"

local ffi_string = ffi.string

local SIZE = 32 -- bytes

local mac = ffi.new("unsigned char[?]", SIZE)
local length = ffi.new("unsigned int[1]")

local _M = { SIZE = SIZE }

-- new(secret) -> context. A context made in the master is copied to each worker by the fork.
function _M.new(secret)
  local ctx = ffi.gc(crypto.sluice_HMAC_CTX_new(), crypto.sluice_HMAC_CTX_free)
  if ctx == nil or crypto.sluice_HMAC_Init_ex(ctx, secret, #secret, crypto.sluice_EVP_sha256(), nil) ~= 1 then
    error("libcrypto has no HMAC-SHA256", 0)
  end
  return ctx
end

-- compute(ctx, text, n) -> the MAC over n bytes: SIZE bytes of memory, until the next call; or nil
function _M.compute(ctx, text, n)
  if crypto.sluice_HMAC_Init_ex(ctx, nil, 0, nil, nil) == 1 and crypto.sluice_HMAC_Update(ctx, text, n) == 1
    and crypto.sluice_HMAC_Final(ctx, mac, length) == 1 and length[0] == SIZE then
    return mac
  end
end

-- sum(ctx, text) -> the MAC over a text, SIZE bytes; or nil
function _M.sum(ctx, text)
  local bytes = _M.compute(ctx, text, #text)
  return bytes and ffi_string(bytes, SIZE)
end

-- equal(a, b): compares two strings in a time that does not depend on where they differ
function _M.equal(a, b)
  return #a == #b and crypto.sluice_CRYPTO_memcmp(a, b, #a) == 0
end

return _M
