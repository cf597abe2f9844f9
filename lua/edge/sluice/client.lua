-- The client that a request counts for. nginx limits the requests in progress of a client (limit_conn) before the
-- access phase, so the client is determined in the rewrite phase.

local address = require "sluice.address"

local ngx_var = ngx.var

local networks = {}

local _M = {}

-- init(list): the networks of the policy's trusted_proxies
function _M.init(list)
  networks = list
end

-- trusts(peer) -> whether X-Forwarded-For from this address is used; nil: there are no trusted proxies
function _M.trusts(peer)
  if #networks > 0 then
    return address.trusted(networks, peer)
  end
end

-- key(forwarded) -> what counts as one client: the bytes of an address. The address itself goes to $sluice_client.
-- forwarded: the header X-Forwarded-For, or nil
function _M.key(forwarded)
  local peer = ngx_var.binary_remote_addr
  if #networks == 0 then
    return address.bucket(address.unmapped(peer))
  end
  local relayed = address.relayed(networks, peer, ngx_var.proxy_protocol_addr)
  local client, text = address.client(networks, relayed, forwarded)
  if client ~= peer then
    ngx_var.sluice_client = text or address.format(client)
  end
  return address.bucket(client)
end

return _M
