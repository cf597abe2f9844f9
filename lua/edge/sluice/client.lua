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

-- What proxies have said of clients lately, by peer and header, for note: clients come again and again. It is bounded, at half a megabyte or so.
local MAX_NOTED, MAX_LENGTH = 4096, 64
local noted, notes = {}, 0

local function keep(peer, forwarded)
  if notes >= MAX_NOTED then
    noted, notes = {}, 0
  end
  noted[peer] = noted[peer] or {}
  noted[peer][forwarded] = ngx_var.sluice_client
  notes = notes + 1
end

-- note(): says who the client is, and no more: for the log of an answer that no limit is asked for
function _M.note()
  if #networks == 0 then
    return
  end
  local peer, forwarded = ngx_var.binary_remote_addr, ngx_var.http_x_forwarded_for
  local of_peer = forwarded and noted[peer]
  local text = of_peer and of_peer[forwarded]
  if text then
    ngx_var.sluice_client = text
    return
  end
  decide()
  if forwarded and #forwarded <= MAX_LENGTH and not ngx_var.proxy_protocol_addr then
    keep(peer, forwarded)
  end
end

-- enter() -> $sluice_refused: the status that a badly written head is refused with, or "". What counts as one client goes to $sluice_key.
function _M.enter()
  ngx_var.sluice_key = decide()
  return head.judge() or ""
end

return _M
