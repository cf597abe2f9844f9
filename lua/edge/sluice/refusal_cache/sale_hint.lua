-- Parses the headers Sluice-Sale and Sluice-Holders, in which a backend describes a whole sale: "<id>;name=value;...".
-- A header that cannot be parsed completely, or that is about another sale, is ignored. Unknown fields are ignored.

local find, gmatch, match, sub = string.find, string.gmatch, string.match, string.sub
local tonumber = tonumber

local STATES = { sold_out = true, scheduled = true, paused = true, closed = true }

local MAX_DIGITS = 15 -- such numbers are exact
local MAX_ID = 64 -- characters

local _M = { MAX_ID = MAX_ID }

-- is_id(id) -> whether this is an id as backends make it: 1 to 64 characters, none of which is escaped in a path
function _M.is_id(id)
  return #id <= MAX_ID and find(id, "^%w[%w._-]*$") ~= nil
end

-- fields(value, id) -> table of texts by name, or nil
local function fields(value, id)
  local head = id .. ";"
  if not _M.is_id(id) or sub(value, 1, #head) ~= head then
    return nil
  end
  local out = {}
  for field in gmatch(sub(value, #head + 1) .. ";", "([^;]*);") do
    local name, text = match(field, "^([^=]+)=(.+)$")
    if not name or out[name] then
      return nil
    end
    out[name] = text
  end
  return out
end

local function number(text)
  return text and #text <= MAX_DIGITS and find(text, "^%d+$") and tonumber(text) or nil
end

-- sale(value, id) -> { state, version, ttl (ms), holders, opens (ms since 1970; with "scheduled" only) }, or nil.
-- value: of Sluice-Sale
function _M.sale(value, id)
  local f = fields(value, id)
  if not f or not STATES[f.state] then
    return nil
  end
  local version, ttl, holders, opens = number(f.version), number(f.ttl), number(f.holders), number(f.opens)
  if not version or not ttl or ttl == 0 or not holders
    or f.opens and not opens or f.state == "scheduled" and not opens then
    return nil
  end
  return { state = f.state, version = version, ttl = ttl, holders = holders, opens = opens }
end

-- holders(value, id) -> accepted, count; or nil. value: of Sluice-Holders
function _M.holders(value, id)
  local f = fields(value, id)
  local accepted, count = f and number(f.accepted), f and number(f.count)
  if not accepted or not count then
    return nil
  end
  return accepted, count
end

return _M
