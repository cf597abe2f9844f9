-- The verified cache: tokens that this worker has verified, by the text in which they came, until they expire. Buyers
-- send the same token with many requests.

local lrucache = require "resty.lrucache"

-- Tokens of the usual size take 4 MB in each worker. The number is well below a power of two: a Lua table that is
-- exactly full is rehashed with every new key.
local TOKENS = 10000
local MAX_TEXT = 1024 -- bytes; a longer token is verified each time

local cache

local _M = {}

-- clear() empties the cache
function _M.clear()
  cache = lrucache.new(TOKENS)
end

_M.clear()

-- get(text, now) -> the subject of a verified token, or nil. now: seconds since 1970
function _M.get(text, now)
  local token = cache:get(text)
  if token and now < token.expiry then
    return token.subject
  end
end

-- set(text, subject, expiry) stores a token that was verified
function _M.set(text, subject, expiry)
  if #text <= MAX_TEXT then
    cache:set(text, { subject = subject, expiry = expiry })
  end
end

return _M
