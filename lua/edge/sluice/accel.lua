-- Optional accelerators. A module of sluice/accel/ replaces a plain module that has the same interface, and relies on
-- properties that nginx does not guarantee. It verifies them when the master loads it, and raises an error if one does
-- not hold. Then, and if its file is missing, the plain module is used. Properties of a single request are verified
-- with that request. If one does not hold, the plain module handles the request. The edge works without the directory
-- sluice/accel/.
--
-- SLUICE_EDGE_PLAIN lists accelerators that are not used, separated by commas, or is "all": for tests and measurements.

local ngx = ngx
local getenv = os.getenv
local error, package, pcall, require, tostring = error, package, pcall, require, tostring
local find, match = string.find, string.match

local selected = {} -- by name
local NOT_SELECTED = {} -- the error of `need`: the accelerator that another one builds on is off

local _M = {}

-- is_off(name) -> whether the environment switches this accelerator off
local function is_off(name)
  local off = getenv("SLUICE_EDGE_PLAIN")
  return off == "all" or off ~= nil and find("," .. off .. ",", "," .. name .. ",", 1, true) ~= nil
end

local function load(name, plain)
  local module = "sluice.accel." .. name
  if is_off(name) or not package.searchpath(module, package.path) then
    return require(plain)
  end
  local ok, found = pcall(require, module)
  if ok then
    return found
  end
  if found == NOT_SELECTED then -- the log has the reason already
    return require(plain)
  end
  ngx.log(ngx.WARN, "accelerator ", name, " is off: ", match(tostring(found), "^[^\n]*"))
  return require(plain)
end

-- select(name, plain) -> the module sluice.accel.<name>, or the plain module. The first call decides.
function _M.select(name, plain)
  if not selected[name] then
    selected[name] = load(name, plain)
  end
  return selected[name]
end

-- need(name, plain) -> the module sluice.accel.<name>, for an accelerator that builds on it. Raises an error when the
-- plain module is selected.
function _M.need(name, plain)
  local found = _M.select(name, plain)
  if found ~= package.loaded["sluice.accel." .. name] then
    error(NOT_SELECTED)
  end
  return found
end

return _M
