-- The client's address: the peer's, unless the peer is a proxy that the policy trusts. Then it is the right-most hop of
-- X-Forwarded-For that is not trusted. When a hop cannot be parsed, the peer counts.
--
-- Addresses are strings of bytes: 4 for IPv4 (also when mapped into IPv6), 16 for IPv6.

local ffi = require "ffi"
local bit = require "bit"

local C = ffi.C
local byte, find, sub, match = string.byte, string.find, string.sub, string.match
local band, lshift = bit.band, bit.lshift
local ffi_string = ffi.string

ffi.cdef [[
int sluice_inet_pton(int family, const char *text, void *out) __asm__("inet_pton");
const char *sluice_inet_ntop(int family, const void *bytes, char *out, unsigned int size) __asm__("inet_ntop");
]]

local AF_INET, AF_INET6 = 2, 10 -- Linux
local MAPPED = ("\0"):rep(10) .. "\255\255"

-- No real chain of proxies has more hops: a longer header is meant to waste processor time of the edge.
local MAX_HOPS = 16
local MAX_HEADER = 1024

local bytes_buf, text_buf = ffi.new("unsigned char[16]"), ffi.new("char[64]")

local _M = {}

-- unmapped(bytes) -> the address without its IPv6 mapping
local function unmapped(bytes)
  if #bytes == 16 and sub(bytes, 1, 12) == MAPPED then
    return sub(bytes, 13)
  end
  return bytes
end

_M.unmapped = unmapped

-- parse(text) -> bytes, or nil
function _M.parse(text)
  if #text > 45 or find(text, "\0", 1, true) then -- C would stop reading there
    return nil
  end
  if C.sluice_inet_pton(AF_INET, text, bytes_buf) == 1 then
    return ffi_string(bytes_buf, 4)
  end
  if C.sluice_inet_pton(AF_INET6, text, bytes_buf) == 1 then
    return unmapped(ffi_string(bytes_buf, 16))
  end
end
local parse = _M.parse

-- format(bytes) -> text
function _M.format(bytes)
  C.sluice_inet_ntop(#bytes == 4 and AF_INET or AF_INET6, bytes, text_buf, 64)
  local text = ffi_string(text_buf)
  if #bytes == 16 and find(text, ".", 1, true) then -- "::192.0.2.1": the Go gateway writes it as in RFC 5952
    local a, b, c, d = byte(bytes, 13, 16)
    return ("::%x:%x"):format(a * 256 + b, c * 256 + d)
  end
  return text
end

-- network(text) -> { bytes, bits } from a CIDR or a single address; or nil
function _M.network(text)
  local host, length = match(text, "^([%x:.]+)/(%d%d?%d?)$")
  if host and find(length, "^0%d") then
    return nil
  end
  local bytes = parse(host or text)
  if not bytes then
    return nil
  end
  local bits = tonumber(length) or #bytes * 8
  if #bytes == 4 and host and find(host, ":", 1, true) then
    bits = bits - 96 -- ::ffff:10.0.0.0/104 is 10.0.0.0/8
  end
  if bits < 0 or bits > #bytes * 8 then
    return nil
  end
  local rest = bits % 8
  local whole = (bits - rest) / 8
  return { bytes = bytes, bits = bits, whole = whole, rest = rest, prefix = sub(bytes, 1, whole) }
end

local function contains(network, bytes)
  local whole, rest = network.whole, network.rest
  if #network.bytes ~= #bytes or network.prefix ~= sub(bytes, 1, whole) then
    return false
  end
  if rest == 0 then
    return true
  end
  local mask = band(lshift(0xFF, 8 - rest), 0xFF)
  return band(byte(network.bytes, whole + 1), mask) == band(byte(bytes, whole + 1), mask)
end

-- trusted(networks, bytes, i) -> whether the address is in one of the networks from the i-th on
local function trusted(networks, bytes, i)
  local network = networks[i]
  if not network or contains(network, bytes) then
    return network ~= nil
  end
  return trusted(networks, bytes, i + 1)
end

-- trusted(networks, peer) -> whether the peer is a trusted proxy. peer: bytes as nginx has them
function _M.trusted(networks, peer)
  return trusted(networks, unmapped(peer), 1)
end

-- last_untrusted(networks, peer, forwarded) -> bytes: the first hop from the right that is not trusted
local function last_untrusted(networks, peer, forwarded)
  local stop = #forwarded
  for _ = 1, MAX_HOPS do
    local comma = stop
    while comma > 0 and byte(forwarded, comma) ~= 44 do
      comma = comma - 1
    end
    local hop = parse(match(sub(forwarded, comma + 1, stop), "^[ \t]*(.-)[ \t]*$"))
    if not hop then
      return peer
    end
    if comma == 0 or not trusted(networks, hop, 1) then
      return hop
    end
    stop = comma - 1
  end
  return peer
end

-- relayed(networks, peer, named) -> bytes: the address that a trusted load balancer names in its PROXY header,
-- otherwise the peer. named: text, or nil
function _M.relayed(networks, peer, named)
  if not named or named == "" or not trusted(networks, unmapped(peer), 1) then
    return peer
  end
  return parse(named) or peer
end

-- client(networks, peer, forwarded) -> bytes; and as text, if that is available. peer: bytes as nginx has them.
-- forwarded: the header X-Forwarded-For, or nil
function _M.client(networks, peer, forwarded)
  peer = unmapped(peer)
  if not forwarded or #networks == 0 or #forwarded > MAX_HEADER or not trusted(networks, peer, 1) then
    return peer
  end
  if not find(forwarded, ",", 1, true) then -- one hop: nearly every header
    local hop = parse(forwarded)
    if hop then
      return hop, not find(forwarded, ":", 1, true) and forwarded or nil -- an IPv4 address has one spelling
    end
  end
  return last_untrusted(networks, peer, forwarded)
end

-- bucket(bytes) -> what counts as one client: the address, or the /64 of an IPv6 address
function _M.bucket(bytes)
  if #bytes == 16 then
    return sub(bytes, 1, 8)
  end
  return bytes
end

return _M
