-- libcrypto, by FFI. __asm__ names the function of the library. The Lua name is private, so that it does not clash with
-- another module's declaration.

local ffi = require "ffi"

local C = ffi.C
local pcall = pcall

ffi.cdef [[
const void *sluice_EVP_sha256(void) __asm__("EVP_sha256");
void *sluice_HMAC_CTX_new(void) __asm__("HMAC_CTX_new");
void sluice_HMAC_CTX_free(void *ctx) __asm__("HMAC_CTX_free");
int sluice_HMAC_Init_ex(void *ctx, const void *key, int length, const void *md, void *engine) __asm__("HMAC_Init_ex");
int sluice_HMAC_Update(void *ctx, const void *data, size_t length) __asm__("HMAC_Update");
int sluice_HMAC_Final(void *ctx, unsigned char *out, unsigned int *out_length) __asm__("HMAC_Final");
int sluice_CRYPTO_memcmp(const void *a, const void *b, size_t length) __asm__("CRYPTO_memcmp");
void *sluice_EVP_PKEY_new_raw_public_key(int type, void *engine, const unsigned char *key, size_t length)
  __asm__("EVP_PKEY_new_raw_public_key");
void *sluice_d2i_PUBKEY(void **key, const unsigned char **der, long length) __asm__("d2i_PUBKEY");
void sluice_EVP_PKEY_free(void *key) __asm__("EVP_PKEY_free");
void *sluice_EVP_MD_CTX_new(void) __asm__("EVP_MD_CTX_new");
void sluice_EVP_MD_CTX_free(void *ctx) __asm__("EVP_MD_CTX_free");
int sluice_EVP_MD_CTX_reset(void *ctx) __asm__("EVP_MD_CTX_reset");
int sluice_EVP_DigestVerifyInit(void *ctx, void **pctx, const void *md, void *engine, void *key)
  __asm__("EVP_DigestVerifyInit");
int sluice_RSA_pkey_ctx_ctrl(void *ctx, int operation, int command, int p1, void *p2) __asm__("RSA_pkey_ctx_ctrl");
int sluice_EVP_DigestVerify(void *ctx, const char *signature, size_t length, const char *text, size_t n)
  __asm__("EVP_DigestVerify");
void sluice_ERR_clear_error(void) __asm__("ERR_clear_error");
]]

-- nginx links libcrypto, so its functions are usually symbols of the process.
for _, name in ipairs { "", "libcrypto.so.3", "libcrypto.so.1.1", "crypto" } do
  local ok, lib = pcall(function()
    local l = name == "" and C or ffi.load(name)
    return l.sluice_HMAC_CTX_new and l.sluice_EVP_DigestVerify and l.sluice_CRYPTO_memcmp and l
  end)
  if ok and lib then
    return lib
  end
end
error("libcrypto was not found: this nginx is built without OpenSSL 1.1.1 or newer", 0)
