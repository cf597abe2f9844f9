-- Requests the bypass list of a sale from a backend. It is not a subrequest, which ngx_lua rejects in HTTP/2 before
-- 0.10.28.

local ngx = ngx
local ngx_var = ngx.var
local find, match, sub = string.find, string.match, string.sub
local tonumber = tonumber

-- ms. A backend takes two seconds for a list of a million buyers.
local CONNECT, SEND, READ = 1000, 1000, 10000

-- exchange(sock, method, id) -> header, body; or nil, err. In HTTP/1.0 the response ends with the connection.
local function exchange(sock, method, id)
  local sent, err = sock:send(method .. " /.sluice/sales/" .. id .. "/holders HTTP/1.0\r\nHost: localhost\r\n"
    .. "X-Request-Id: " .. ngx_var.sluice_request_id .. "\r\n\r\n")
  local head
  if sent then
    head, err = sock:receiveuntil("\r\n\r\n")()
  end
  if not head then
    return nil, err
  elseif not find(head, "^HTTP/1%.[01] 200") then
    return nil, "a backend answers " .. sub(head, #"HTTP/1.1 " + 1, #"HTTP/1.1 200")
  end
  local body = ""
  if method == "GET" then
    body, err = sock:receive("*a")
  end
  return body and (match(head, "\r\nSluice%-Holders: *([^\r]*)") or ""), body or err
end

-- list_request(backend, id, short): see bypass_list.fetch. backend: address:port or unix:/path
return function(backend, id, short)
  local sock = ngx.socket.tcp()
  sock:settimeouts(CONNECT, SEND, READ)
  local host, port = match(backend, "^([^/]+):(%d+)$")
  local ok, err
  if host then
    ok, err = sock:connect(host, tonumber(port))
  else
    ok, err = sock:connect(backend)
  end
  if not ok then
    return nil, err
  end
  local header, body = exchange(sock, short and "HEAD" or "GET", id)
  sock:close()
  return header, body
end
