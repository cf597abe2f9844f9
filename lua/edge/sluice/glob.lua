-- Path patterns of the policy: literal text, in which a whole segment may be `*`. Letter case and one slash at the end
-- make no difference, as in a lenient router: otherwise another spelling of a path would bypass its rule.

local byte, find, gmatch, gsub, sub = string.byte, string.find, string.gmatch, string.gsub, string.sub

local SLASH = 47

local _M = {}

-- fault(pattern) -> what is wrong with it, or nil
function _M.fault(pattern)
  if byte(pattern) ~= SLASH then
    return "must begin with a slash"
  end
  if pattern == "/" then
    return nil
  end
  for segment in gmatch(sub(pattern, 2) .. "/", "([^/]*)/") do
    if segment == "" then
      return "has an empty segment or a slash at its end"
    elseif segment == "." or segment == ".." then
      return 'has a segment "." or ".."'
    elseif segment ~= "*" and find(segment, "*", 1, true) then
      return 'may have "*" only as a whole segment'
    elseif find(segment, "[^!-~]") or find(segment, '["%%<>\\\\^{|}?#`]') then
      return "is matched against decoded paths without a query, and may hold plain ASCII only"
    end
  end
end

-- regex(pattern) -> a Perl-compatible regular expression for ngx.re with the options of `options`; pattern must have no
-- fault
function _M.regex(pattern)
  local literal = gsub(pattern, "[^%w/*]", "\\%0")
  local stars = gsub(literal, "%*", "[^/]+")
  if pattern == "/" then
    return "\\A/\\z"
  end
  return "\\A" .. stars .. "/?\\z"
end

-- Case-insensitive; compiled to machine code, once per worker.
_M.options = "ijo"

return _M
