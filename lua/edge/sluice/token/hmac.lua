-- HMAC-SHA256. A keyed context is kept and rewound for every text: to hash the key in anew, as the one-shot HMAC() does, takes four times as long.

local crypto = require "sluice.token.crypto"
local ffi = require "ffi"

local BYTES = 32

local length = ffi.new("unsigned int[1]")

local _M = { BYTES = BYTES }

-- new(secret) -> context. It belongs to one worker; what the master made before it forked is each worker's own.
function _M.new(secret)
  local ctx = ffi.gc(crypto.sluice_HMAC_CTX_new(), crypto.sluice_HMAC_CTX_free)
  if ctx == nil or crypto.sluice_HMAC_Init_ex(ctx, secret, #secret, crypto.sluice_EVP_sha256(), nil) ~= 1 then
    error("libcrypto has no HMAC-SHA256", 0)
  end
  return ctx
end

-- sum(ctx, text, n, out) -> whether out holds the BYTES of the MAC over the n bytes of text
function _M.sum(ctx, text, n, out)
  return crypto.sluice_HMAC_Init_ex(ctx, nil, 0, nil, nil) == 1 and crypto.sluice_HMAC_Update(ctx, text, n) == 1
    and crypto.sluice_HMAC_Final(ctx, out, length) == 1 and length[0] == BYTES
end

-- equal(a, b, n): takes the same time wherever they differ
function _M.equal(a, b, n)
  return crypto.sluice_CRYPTO_memcmp(a, b, n) == 0
end

return _M
