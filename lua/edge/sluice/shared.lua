-- Reads shared dicts by keys that lie in memory, and what it finds stays in memory too. ngx.shared.DICT wants Lua strings and makes some: for a key
-- that is new with every request that costs as much as to look it up. And it is many layers: to LuaJIT this is one call.

local ffi = require "ffi"
require "resty.core.shdict"

local C = ffi.C
local tonumber = tonumber

ffi.cdef [[
int sluice_shdict_get(void *zone, const unsigned char *key, size_t length, int *type, unsigned char **text, size_t *text_length, double *number,
  int *flags, int get_stale, int *is_stale, char **err) __asm__("ngx_http_lua_ffi_shdict_get");
void *sluice_shdict_of(void *udata) __asm__("ngx_http_lua_ffi_shdict_udata_to_zone");
void sluice_free(void *p) __asm__("free");
]]

local STRING = 4 -- Lua's type
local SIZE = 1024

local kind, flags, stale = ffi.new("int[1]"), ffi.new("int[1]"), ffi.new("int[1]")
local value, err = ffi.new("double[1]"), ffi.new("char *[1]")
local buffer = ffi.new("unsigned char[?]", SIZE)
local text, length = ffi.new("unsigned char *[1]"), ffi.new("size_t[1]")

local _M = { buffer = buffer }

-- zone(dict) -> what the others want. In any phase.
function _M.zone(dict)
  return C.sluice_shdict_of(dict[1])
end

-- get(zone, key, n) -> the type of what is there. What does not fit was put elsewhere, and counts for nothing.
local function get(zone, key, n)
  text[0], length[0] = buffer, SIZE
  if C.sluice_shdict_get(zone, key, n, kind, text, length, value, flags, 0, stale, err) ~= 0 then
    return nil
  end
  if kind[0] == STRING and text[0] ~= buffer then
    C.sluice_free(text[0])
    return nil
  end
  return kind[0]
end

-- text(zone, key, n) -> how many bytes of text are in `buffer` now, or nil: there is none, or none of 1,024 bytes at most
function _M.text(zone, key, n)
  if get(zone, key, n) == STRING then
    return tonumber(length[0])
  end
end

return _M
