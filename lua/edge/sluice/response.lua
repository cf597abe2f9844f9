-- The header filter of answers from the backend: what the backend tells the edge (Sluice-*) is not for clients.

local ngx = ngx
local get_headers = ngx.resp.get_headers
local find = string.find

local _M = {}

function _M.run()
  local headers = get_headers(0, true)
  for name in pairs(headers) do
    if find(name, "^[Ss][Ll][Uu][Ii][Cc][Ee]%-") then
      ngx.header[name] = nil
    end
  end
end

return _M
