-- Path patterns of the policy: literal text, where a whole segment may be `*`. A path is compared as the backend's router would, which
-- ignores letter case and one slash at the end: a pattern that did not could be walked around by spelling the path another way.

local byte, find, gmatch, lower, sub = string.byte, string.find, string.gmatch, string.lower, string.sub

local SLASH = 47

local _M = {}

-- fault(pattern) -> what is wrong with it, or nil
local function fault(pattern)
  if byte(pattern) ~= SLASH then
    return "must begin with a slash"
  end
  if find(pattern, "//", 1, true) or #pattern > 1 and byte(pattern, -1) == SLASH then
    return "has an empty segment or a slash at its end"
  end
  for segment in gmatch(pattern, "[^/]+") do
    if segment == "." or segment == ".." then
      return 'has a segment "." or ".."'
    elseif segment ~= "*" and find(segment, "*", 1, true) then
      return 'may have "*" only as a whole segment'
    elseif find(segment, '[^!-~]') or find(segment, '["%%<>\\^{|}?#`]') then
      return "is matched against decoded paths without a query, and may hold plain ASCII only"
    end
  end
end

-- compile(pattern) -> the literal pieces around each `*`; or nil, why
function _M.compile(pattern)
  local why = fault(pattern)
  if why then
    return nil, why
  end
  pattern = lower(pattern)
  local pieces, at = {}, 1
  while true do
    local star = find(pattern, "*", at, true)
    pieces[#pieces + 1] = sub(pattern, at, (star or 0) - 1)
    if not star then
      return pieces
    end
    at = star + 1
  end
end

-- canonical(path) -> path in lower case, without the slash at its end
function _M.canonical(path)
  path = lower(path)
  local n = #path
  if n > 1 and byte(path, n) == SLASH then
    return sub(path, 1, n - 1)
  end
  return path
end

-- match(pieces, path) -> boolean; path must be canonical
function _M.match(pieces, path)
  local at, n = 1, #pieces
  for i = 1, n do
    local piece = pieces[i]
    local length = #piece
    if sub(path, at, at + length - 1) ~= piece then
      return false
    end
    at = at + length
    if i < n then -- a segment, of one byte at least
      local stop = find(path, "/", at, true) or #path + 1
      if stop == at then
        return false
      end
      at = stop
    end
  end
  return at == #path + 1
end

return _M
