-- The verified cache: tokens that this worker has verified twice, by the text in which they were sent, until they
-- expire. Buyers that wait for a sale send the same token with many requests. A token that is sent once would only
-- displace another one, and the garbage collector would spend more time on its text than the verification takes.

local lrucache = require "resty.lrucache"
local new_table = require "table.new"

-- Tokens of the usual size take 4 MB in each worker. The number is well below a power of two: a Lua table that is
-- exactly full is rehashed with every new key.
local TOKENS = 10000
local MAX_TEXT = 1024 -- bytes; a longer token is verified each time

-- Digests of tokens that were verified once, each in the slot of its remainder: the number of slots is a prime. Of two
-- tokens with the same slot, the newer one replaces the older one.
local SEEN = 16381

local byte = string.byte

local cache, seen

local _M = {}

-- clear() empties the cache
function _M.clear()
  cache, seen = lrucache.new(TOKENS), new_table(SEEN, 0)
  for i = 1, SEEN do
    seen[i] = 0
  end
end

_M.clear()

-- get(text, now) -> the subject of a verified token, or nil. now: seconds since 1970
function _M.get(text, now)
  local token = cache:get(text)
  if token and now < token.expiry then
    return token.subject
  end
end

-- is_new(text) -> whether this worker has not verified the token before, as far as it remembers. text: ends with a
-- verified token; its last characters belong to the signature, so they are distributed evenly.
function _M.is_new(text)
  local a, b, c, d, e, f, g = byte(text, -7, -1)
  local digest = (((((a * 131 + b) * 131 + c) * 131 + d) * 131 + e) * 131 + f) * 131 + g -- below 2^53, so exact
  local place = digest % SEEN + 1
  if seen[place] == digest then
    return false
  end
  seen[place] = digest
  return true
end

-- set(text, subject, expiry) stores a token that was verified
function _M.set(text, subject, expiry)
  if #text <= MAX_TEXT then
    cache:set(text, { subject = subject, expiry = expiry })
  end
end

return _M
