-- Who a request counts for. In the rewrite phase, because nginx bounds the connections of a client before the access phase.

local address = require "sluice.address"

local ngx_var = ngx.var

local networks = {}

-- Peers that were found to be trusted: proxies are few. It is bounded all the same.
local MOST_BELIEVED = 1024
local believed, believers = {}, 0

local _M = {}

-- init(list): the networks of the policy's trusted_proxies
function _M.init(list)
  networks = list
  believed, believers = {}, 0
end

local function believe(peer)
  if believers >= MOST_BELIEVED then
    believed, believers = {}, 0
  end
  believed[peer], believers = true, believers + 1
end

-- decide(head) -> what counts as one client; the address itself goes to $sluice_client. head: as head/plain.lua has it, or nil
function _M.decide(head)
  local peer = ngx_var.binary_remote_addr
  if #networks == 0 then
    return address.bucket(address.client(networks, peer))
  end
  local named = ngx_var.proxy_protocol_addr
  if head and believed[peer] and not named then
    local forwarded, n = head.forwarded, head.forwarded_length
    if forwarded == nil then
      return address.bucket(address.client(networks, peer))
    end
    -- One IPv4 address, which is nearly every header. Its only spelling is the client's name in the log.
    local bytes = address.ipv4_at(forwarded, n)
    if bytes then
      if bytes ~= peer then
        ngx_var.sluice_client = address.text_at(forwarded, n)
      end
      return bytes
    end
  end
  if address.trusted(networks, peer) and not believed[peer] then
    believe(peer)
  end
  local bytes = address.client(networks, address.relayed(networks, peer, named), ngx_var.http_x_forwarded_for)
  if bytes ~= peer then
    ngx_var.sluice_client = address.format(bytes)
  end
  return address.bucket(bytes)
end

return _M
