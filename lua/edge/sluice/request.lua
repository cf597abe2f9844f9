-- The variables of the request at hand, read and written where nginx has them. A Lua string that is new with every request costs more than what is
-- done with it, and so does a variable that is set by its name: a flood is refused with neither.
--
-- nginx keeps the variables that its configuration names in one array a request, each of them at the same place in every request. Where, each worker
-- finds out when it reads or sets a variable for the first time: by its name, as everybody does, and then it looks whether the value is where it
-- should be. In an nginx that has it elsewhere, all are read and set by their names for ever.

local ffi = require "ffi"
local bit = require "bit"
local get_request = require("resty.core.base").get_request

local C = ffi.C
local band, bor = bit.band, bit.bor
local byte = string.byte
local ffi_string, tonumber = ffi.string, tonumber
local ngx_var = ngx.var

ffi.cdef [[
typedef struct { size_t length; const char *data; } sluice_name_t;
typedef struct { sluice_name_t name; uintptr_t hash; } sluice_variable_t;
typedef struct { uint32_t bits; const unsigned char *data; } sluice_value_t;
typedef struct { sluice_value_t *line; } sluice_request_t;
sluice_value_t *sluice_variable(void *request, const void *name, uintptr_t hash) __asm__("ngx_http_get_variable");
sluice_value_t *sluice_indexed(void *request, uintptr_t index) __asm__("ngx_http_get_flushed_variable");
int sluice_equal(const unsigned char *at, const char *text, size_t n) __asm__("memcmp");
]]

-- What a value's `bits` are (ngx_variable_value_t): 28 of length, then flags.
local LENGTH, VALID, NOT_FOUND = 0x0fffffff, 0x10000000, 0x40000000

-- A configuration has some hundred variables.
local MOST = 4096

local _M = {}

-- variable(name) -> what find wants
function _M.variable(name)
  local v = ffi.new("sluice_variable_t")
  v.name.length, v.name.data, v.hash = #name, name, 0
  for i = 1, #name do
    v.hash = v.hash * 31 + byte(name, i)
  end
  return { c = v, name = name } -- keeps the name's memory
end

local function by_name(variable)
  local c = variable.c
  return C.sluice_variable(get_request(), c.name, c.hash)
end

-- index_of(variable, value) -> where in the array the variable has this value, which by_name has just found; or false: not there
local function index_of(variable, value)
  if value == nil or by_name(variable) ~= value then -- what is not in the array is somewhere else each time
    return false
  end
  local r = get_request()
  local first = C.sluice_indexed(r, 0)
  local index = first ~= nil and tonumber(value - first) or -1
  return index >= 0 and index <= MOST and C.sluice_indexed(r, index) == value and index
end

-- find(variable) -> its value, or nil where it has none. value.data is good for as long as the request is, and no zero byte ends it. To look for a
-- name takes nginx five times as long as to go to a place.
local function find(variable)
  local value
  if variable.index then
    value = C.sluice_indexed(get_request(), variable.index)
  else
    value = by_name(variable)
    if variable.index == nil then
      variable.index = index_of(variable, value)
    end
  end
  if value ~= nil and band(value.bits, NOT_FOUND) == 0 then
    return value
  end
end

_M.find = find

-- length(value) -> bytes
local function length(value)
  return band(value.bits, LENGTH)
end

_M.length = length

-- The request line, which the configuration names: places are counted from it.
local LINE = _M.variable("request")
local here = ffi.new("sluice_request_t")

-- arrive() -> the value of the request line, or nil. Call it before set and set_at, for each request.
function _M.arrive()
  here.line = find(LINE)
  return here.line
end

-- line() -> what arrive has found
function _M.line()
  return here.line
end

-- By name, how far behind the request line's a variable's value is, in values; false where nobody knows.
local places = {}

-- place(name, text) -> how far; or false. The variable has just been set to this text.
local function place(name, text)
  local variable = _M.variable(name)
  local value = find(variable)
  -- What is not in the array is somewhere else each time.
  if value == nil or value ~= find(variable) or here.line == nil or here.line ~= find(LINE) then
    return false
  end
  local far = tonumber(value - here.line)
  if far < -MOST or far > MOST or here.line + far ~= value or value.bits ~= bor(#text, VALID) or ffi_string(value.data, #text) ~= text then
    return false
  end
  return far
end

local function set_by_name(name, text)
  ngx_var[name] = text
  if places[name] == nil then
    places[name] = place(name, text)
  end
end

-- set(name, text): sets a variable, to a string that is never collected
function _M.set(name, text)
  local far = places[name]
  if far and here.line ~= nil then
    local value = here.line + far
    value.bits, value.data = bor(#text, VALID), text
  else
    set_by_name(name, text)
  end
end

-- set_at(name, at, n): sets a variable to n bytes of memory that stay as they are until the request is logged
function _M.set_at(name, at, n)
  local far = places[name]
  if far and here.line ~= nil then
    local value = here.line + far
    value.bits, value.data = bor(n, VALID), at
  else
    set_by_name(name, ffi_string(at, n))
  end
end

-- same(at, n, text) -> whether n bytes of memory are the text
function _M.same(at, n, text)
  return n == #text and C.sluice_equal(at, text, n) == 0
end

return _M
