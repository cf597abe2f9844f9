-- Sets variables of the current request.

local ngx_var = ngx.var

local _M = {}

-- set(name, text): text must stay referenced for as long as the worker lives, for the accelerator of this module
function _M.set(name, text)
  ngx_var[name] = text
end

return _M
