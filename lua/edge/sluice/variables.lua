-- Reads and sets variables of the current request.

local ngx_var = ngx.var

local _M = {}

-- get(name) -> the text, or nil
function _M.get(name)
  return ngx_var[name]
end

-- set(name, text): text must stay referenced for the lifetime of the worker, for the accelerator of this module
function _M.set(name, text)
  ngx_var[name] = text
end

return _M
