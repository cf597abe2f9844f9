-- HMAC-SHA256 by the libcrypto that nginx links. A keyed context is kept and rewound for every text: to hash the key in anew, as the one-shot
-- HMAC() does, takes four times as long.

local ffi = require "ffi"

local C = ffi.C
local pcall = pcall

ffi.cdef [[
const void *sluice_EVP_sha256(void) __asm__("EVP_sha256");
void *sluice_HMAC_CTX_new(void) __asm__("HMAC_CTX_new");
void sluice_HMAC_CTX_free(void *ctx) __asm__("HMAC_CTX_free");
int sluice_HMAC_Init_ex(void *ctx, const void *key, int length, const void *md, void *engine) __asm__("HMAC_Init_ex");
int sluice_HMAC_Update(void *ctx, const unsigned char *data, size_t length) __asm__("HMAC_Update");
int sluice_HMAC_Final(void *ctx, unsigned char *out, unsigned int *out_length) __asm__("HMAC_Final");
int sluice_CRYPTO_memcmp(const void *a, const void *b, size_t length) __asm__("CRYPTO_memcmp");
]]

local BYTES = 32

local crypto -- what holds libcrypto's functions
local length = ffi.new("unsigned int[1]")

local _M = { BYTES = BYTES }

-- nginx links libcrypto, so its functions are usually to be found in the process itself.
local function libcrypto()
  for _, name in ipairs { "", "libcrypto.so.3", "libcrypto.so.1.1", "crypto" } do
    local ok, lib = pcall(function()
      local l = name == "" and C or ffi.load(name)
      return l.sluice_HMAC_CTX_new and l.sluice_EVP_sha256 and l.sluice_CRYPTO_memcmp and l
    end)
    if ok and lib then
      return lib
    end
  end
  error("libcrypto was not found: this nginx is built without OpenSSL", 0)
end

-- new(secret) -> context. It belongs to one worker; what the master made before it forked is each worker's own.
function _M.new(secret)
  crypto = crypto or libcrypto()
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
