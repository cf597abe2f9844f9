-- Who a request counts for. In the rewrite phase, because nginx bounds the connections of a client before the access phase.

local address = require "sluice.address"
local ffi = require "ffi"
local names = require "sluice.limit.name"
local request = require "sluice.request"

local ngx_var = ngx.var
local copy = ffi.copy
local tonumber = tonumber
local find, length, set_at = request.find, request.length, request.set_at

local PEER, NAMED = request.variable "binary_remote_addr", request.variable "proxy_protocol_addr"
local IPV4 = 4 -- bytes

local networks = {}

-- Peers, in IPv4, that were found to be trusted, each as a number: proxies are few. It is bounded all the same.
local MOST_BELIEVED = 1024
local believed, believers = {}, 0

-- What settle has found, for one request after the other.
local name = names.new()

local peer_number = ffi.new("union { uint32_t number; unsigned char bytes[4]; }")

local _M = { name = name }

-- init(list): the networks of the policy's trusted_proxies
function _M.init(list)
  networks = list
  believed, believers = {}, 0
end

local function believe(peer)
  if believers >= MOST_BELIEVED then
    believed, believers = {}, 0
  end
  copy(peer_number.bytes, peer, IPV4)
  local number = tonumber(peer_number.number)
  if not believed[number] then
    believed[number], believers = true, believers + 1
  end
end

-- decide() -> what counts as one client; the address itself goes to $sluice_client
function _M.decide()
  local peer = ngx_var.binary_remote_addr
  if #networks == 0 then
    return address.bucket(address.client(networks, peer))
  end
  if #peer == IPV4 and address.trusted(networks, peer) then
    believe(peer)
  end
  local client = address.client(networks, address.relayed(networks, peer, ngx_var.proxy_protocol_addr), ngx_var.http_x_forwarded_for)
  if client ~= peer then
    ngx_var.sluice_client = address.format(client)
  end
  return address.bucket(client)
end

-- quick(head) -> true: the client is in `name`, in IPv4
local function quick(head)
  local peer = find(PEER)
  if peer == nil or length(peer) ~= IPV4 then
    return false
  end
  if #networks > 0 then
    copy(peer_number.bytes, peer.data, IPV4)
    if not head or not believed[tonumber(peer_number.number)] or find(NAMED) ~= nil then
      return false
    elseif head.is_address == 1 then -- its only spelling is the client's name in the log
      names.address(name, head.address, IPV4)
      set_at("sluice_client", head.forwarded, head.forwarded_length)
      return true
    elseif head.forwarded ~= nil then
      return false
    end
  end
  names.address(name, peer.data, IPV4)
  return true
end

-- settle(head) -> how many bytes of `name` are what counts as one client, until the next call. The address itself goes to $sluice_client. head: as
-- head/plain.lua has it, or nil
function _M.settle(head)
  if quick(head) then
    return IPV4
  end
  local client = _M.decide()
  names.address(name, client, #client)
  return #client
end

return _M
