-- Unpadded base64url. Only the canonical spelling of a text is decoded: a lenient decoder would give one token many
-- spellings.

local base64 = require "ngx.base64"

local decode_base64url, encode_base64url = base64.decode_base64url, base64.encode_base64url

local _M = { encode = encode_base64url }

-- decode(text) -> bytes, or nil
function _M.decode(text)
  local bytes = decode_base64url(text)
  if bytes and encode_base64url(bytes) == text then
    return bytes
  end
end

return _M
