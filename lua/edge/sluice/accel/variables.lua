-- Accelerator: reads and sets variables where nginx keeps them, without a lookup by name, and sets them without a copy
-- of the text. Stands in for sluice/variables.lua.
--
-- It relies on the layout of ngx_variable_value_t, and on this: nginx keeps the variables that its configuration names
-- in one array for each request, each at the same index. The index of a variable is found when a worker sets it for the
-- first time: it is set by name, and its value must then be in the array, with the layout expected. When it is not, the
-- variable is set by name from then on.

local bit = require "bit"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request

local C = ffi.C
local band, bor = bit.band, bit.bor
local byte = string.byte
local cast = ffi.cast
local BYTES = ffi.typeof("const unsigned char *")
local ffi_string, tonumber = ffi.string, tonumber
local ngx = ngx
local ngx_var = ngx.var

ffi.cdef [[
typedef struct { size_t length; const char *data; } sluice_name_t;
typedef struct { uint32_t bits; const unsigned char *data; } sluice_value_t;
sluice_value_t *sluice_variable(void *request, const void *name, uintptr_t hash) __asm__("ngx_http_get_variable");
sluice_value_t *sluice_indexed(void *request, uintptr_t index) __asm__("ngx_http_get_indexed_variable");
sluice_value_t *sluice_flushed(void *request, uintptr_t index) __asm__("ngx_http_get_flushed_variable");
]]

local find_value, get_value, get_flushed = C.sluice_variable, C.sluice_indexed, C.sluice_flushed

-- The bits of a value: 28 of length, then flags.
local LENGTH, VALID, NOT_FOUND = 0x0fffffff, 0x10000000, 0x40000000

-- A configuration has some hundred variables.
local MAX_INDEX = 4096

local indexes = {} -- by name; false where a variable is used by name
local keys = {} -- by name: what nginx finds a variable by

local _M = {}

local function key_of(name)
  local hash = ffi.new("uintptr_t", 0)
  for i = 1, #name do
    hash = hash * 31 + byte(name, i)
  end
  return { text = ffi.new("sluice_name_t", #name, name), hash = hash }
end

-- by_name(r, name) -> the value of a variable
local function by_name(r, name)
  local key = keys[name]
  if not key then
    key = key_of(name)
    keys[name] = key
  end
  return (find_value(r, key.text, key.hash))
end

-- index_of_value(r, name, value) -> the index of a variable that by_name has just found; or false
local function index_of_value(r, name, value)
  local first = get_value(r, 0)
  if value == nil or first == nil or value ~= by_name(r, name) then -- it is not in the array
    return false
  end
  local index = tonumber(value - first)
  return index >= 0 and index <= MAX_INDEX and first + index == value and get_value(r, index) == value and index
end

-- index_of(name, text) -> the index of a variable that was just set to this text; or false
local function index_of(name, text)
  local r = get_request()
  local value = by_name(r, name)
  local index = index_of_value(r, name, value)
  return index and value.bits == bor(#text, VALID) and ffi_string(value.data, #text) == text and index
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

-- find(r, name) -> the value of a variable, an ngx_variable_value_t, or nil where it has none. Its memory is valid
-- until the request ends.
local function find(r, name)
  local index = indexes[name]
  local value
  if index then
    value = get_flushed(r, index)
  else
    value = by_name(r, name)
    if index == nil then
      indexes[name] = index_of_value(r, name, value)
    end
  end
  if value ~= nil and band(value.bits, NOT_FOUND) == 0 then
    return value
  end
end

_M.find = find

-- length(value) -> bytes
function _M.length(value)
  return (band(value.bits, LENGTH))
end

-- get(name): see sluice/variables.lua
function _M.get(name)
  local value = find(get_request(), name)
  return value and ffi_string(value.data, band(value.bits, LENGTH)) or nil
end

-- set_at(r, name, at, n): sets a variable to n bytes of memory that stay valid until the request ends
function _M.set_at(r, name, at, n)
  local index = indexes[name]
  if not index then
    return set_by_name(name, ffi_string(at, n))
  end
  local value = get_value(r, 0) + index
  value.bits, value.data = bor(n, VALID), at
end

-- set(name, text): see sluice/variables.lua
function _M.set(name, text)
  local index = indexes[name]
  if not index then
    return set_by_name(name, text)
  end
  local value = get_value(get_request(), 0) + index
  value.bits, value.data = bor(#text, VALID), cast(BYTES, text)
end

return _M
