-- Accelerator: sets variables where nginx keeps them, without a lookup by name and without a copy of the text. Stands
-- in for sluice/variables.lua.
--
-- It relies on the layout of ngx_variable_value_t, and on this: nginx keeps the variables that its configuration names
-- in one array for each request, each at the same index. The index of a variable is found when a worker sets it for the
-- first time: it is set by name, and its value must then be in the array, with the layout expected. When it is not, the
-- variable is set by name from then on.

local bit = require "bit"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request

local C = ffi.C
local bor = bit.bor
local byte = string.byte
local ffi_string, tonumber = ffi.string, tonumber
local ngx = ngx
local ngx_var = ngx.var

ffi.cdef [[
typedef struct { size_t length; const char *data; } sluice_name_t;
typedef struct { uint32_t bits; const char *data; } sluice_value_t;
sluice_value_t *sluice_variable(void *request, const void *name, uintptr_t hash) __asm__("ngx_http_get_variable");
sluice_value_t *sluice_indexed(void *request, uintptr_t index) __asm__("ngx_http_get_indexed_variable");
]]

local find_value, get_value = C.sluice_variable, C.sluice_indexed

-- The bits of a value: 28 of length, then flags.
local VALID = 0x10000000

-- A configuration has some hundred variables.
local MAX_INDEX = 4096

local indexes = {} -- by name; false where a variable is set by name

local _M = {}

-- by_name(r, name) -> the value of a variable
local function by_name(r, name)
  local text = ffi.new("sluice_name_t", #name, name)
  local hash = ffi.new("uintptr_t", 0)
  for i = 1, #name do
    hash = hash * 31 + byte(name, i)
  end
  return find_value(r, text, hash)
end

-- index_of(name, text) -> the index of a variable that was just set to this text; or false
local function index_of(name, text)
  local r = get_request()
  local value, first = by_name(r, name), get_value(r, 0)
  if value == nil or first == nil or value ~= by_name(r, name) then -- it is not in the array
    return false
  end
  local index = tonumber(value - first)
  if index < 0 or index > MAX_INDEX or first + index ~= value or value.bits ~= bor(#text, VALID)
    or ffi_string(value.data, #text) ~= text then
    return false
  end
  return index
end

local function set_by_name(name, text)
  ngx_var[name] = text
  if indexes[name] == nil then
    indexes[name] = index_of(name, text)
    if not indexes[name] then
      ngx.log(ngx.WARN, "accelerator variables is off for $", name, ": it is not where it was expected")
    end
  end
end

-- set(name, text): see sluice/variables.lua
function _M.set(name, text)
  local index = indexes[name]
  if not index then
    return set_by_name(name, text)
  end
  local value = get_value(get_request(), 0) + index
  value.bits, value.data = bor(#text, VALID), text
end

return _M
