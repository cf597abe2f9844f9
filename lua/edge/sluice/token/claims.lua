-- Reads the claims of a token whose signature is verified.

local json = require "sluice.json"

local find = string.find
local getmetatable, type = getmetatable, type

local MAX_SUBJECT = 255 -- bytes

-- Control characters in UTF-8: ASCII's, and U+0080 to U+009F.
local CONTROL, CONTROL_C1 = "%c", "\194[\128-\159]"

-- Times are seconds since 1970. Above 2^53 two whole numbers may have one representation, and some readers overflow.
local MAX_TIME = 9007199254740992

-- expects: whether claims must have an issuer or an audience
local _M = { MAX_SUBJECT = MAX_SUBJECT, expects = false }

local issuer, audience

-- expect(iss, aud): the values that claims must have; nil or "" is not checked. Call it in init_by_lua.
function _M.expect(iss, aud)
  issuer, audience = iss ~= "" and iss or nil, aud ~= "" and aud or nil
  _M.expects = issuer ~= nil or audience ~= nil
end

-- includes(aud) -> whether the audience is this text, or in this list
local function includes(aud)
  if type(aud) == "table" and getmetatable(aud) == json.array then
    for i = 1, #aud do
      if aud[i] == audience then
        return true
      end
    end
  end
  return aud == audience
end

local function is_time(t)
  return type(t) == "number" and t >= 0 and t < MAX_TIME
end

-- read(text) -> sub, exp, nbf or nil; or nil, err
function _M.read(text)
  local claims, err = json.object(text)
  if not claims then
    return nil, "claims: " .. err
  end
  if issuer and claims.iss ~= issuer then
    return nil, "iss"
  end
  if audience and not includes(claims.aud) then
    return nil, "aud"
  end
  local subject, expiry, from = claims.sub, claims.exp, claims.nbf
  if not is_time(expiry) then
    return nil, "exp"
  end
  if claims.iat ~= nil and not is_time(claims.iat) then
    return nil, "iat"
  end
  if from ~= nil and not is_time(from) then
    return nil, "nbf"
  end
  if type(subject) ~= "string" or subject == "" or #subject > MAX_SUBJECT
    or find(subject, CONTROL) or find(subject, CONTROL_C1) then
    return nil, "sub"
  end
  return subject, expiry, from
end

return _M
