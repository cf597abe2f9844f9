-- Who a request counts for. In the rewrite phase, because nginx bounds the connections of a client before the access phase.

local address = require "sluice.address"
local head = require "sluice.head"

local ngx_var = ngx.var

local networks = {}

local _M = {}

-- init(list): the networks of the policy's trusted_proxies
function _M.init(list)
  networks = list
end

-- decide() -> what counts as one client; the address itself goes to $sluice_client
local function decide()
  local peer = ngx_var.binary_remote_addr
  if #networks == 0 then
    return address.bucket(address.client(networks, peer))
  end
  local bytes = address.client(networks, address.relayed(networks, peer, ngx_var.proxy_protocol_addr), ngx_var.http_x_forwarded_for)
  if bytes ~= peer then
    ngx_var.sluice_client = address.format(bytes)
  end
  return address.bucket(bytes)
end

-- enter() -> $sluice_refused: the status that a badly written head is refused with, or "". What counts as one client goes to $sluice_key.
function _M.enter()
  ngx_var.sluice_key = decide()
  return head.judge() or ""
end

return _M
