-- Follows the token keys of a URL. `sluice edge` fetches them and replaces the file of keys; each worker reads it once
-- a second, so newer keys need no reload. A request whose token has an unknown key makes `sluice edge` fetch
-- immediately, over a Unix socket, and waits: internal/token/mirror is the other side, and limits how often it fetches.

local keys = require "sluice.token.keys"
local semaphore = require "ngx.semaphore"
local token = require "sluice.token"

local ngx = ngx
local ngx_now, timer_at, timer_every = ngx.now, ngx.timer.at, ngx.timer.every
local match, tonumber = string.match, tonumber

local EVERY = 1 -- seconds between two reads of the file
local MAX_WAIT = 2 -- seconds that a request waits
local MAX_WAITING = 250 -- requests of one worker that wait; further ones do not
local PAUSE = 1 -- seconds without a call after one that failed
local CONNECT, SEND, READ = 500, 500, 4000 -- ms

local secret, path, socket
local text -- of the file as it was read last
local fault -- why the file could not be read, as the log has it; nil: it was read

local calling, quiet_until, waiting = false, 0, 0
local ended -- a semaphore: the call has ended

local _M = {}

-- init(secret, path, socket): call it in init_by_lua, after token.init. Without a socket, keys change on a reload only.
function _M.init(secret_, path_, socket_)
  secret, path, socket = secret_, path_, socket_ ~= "" and socket_ or nil
  text = socket and keys.text(path)
end

-- read() -> whether the file has other keys, which are in use from now on
local function read()
  local now, err = keys.text(path)
  local before = fault
  fault = not now and err or nil
  if now == text or fault and fault == before then
    return false
  end
  local list, by
  if now then
    text = now
    list, err = keys.parse(now)
  end
  if list then
    by, err = keys.set(secret, list)
  end
  if not by then
    ngx.log(ngx.ERR, "token keys are invalid, keeping the previous ones: ", err)
    return false
  end
  token.use(by)
  ngx.log(ngx.INFO, "token keys reloaded") -- `sluice edge` logs them once for all workers
  return true
end

-- request() -> seconds until another fetch is permitted; or nil
local function request()
  local sock = ngx.socket.tcp()
  sock:settimeouts(CONNECT, SEND, READ)
  if not sock:connect("unix:" .. socket) then
    return nil -- nginx has logged it
  end
  local line = sock:receive()
  sock:close()
  return line and tonumber(match(line, "^%d+$"))
end

local function call()
  if not read() then -- another worker may have requested them
    local ok, seconds = pcall(request)
    if not ok then
      ngx.log(ngx.ERR, "token keys cannot be requested: ", seconds)
      seconds = nil
    end
    quiet_until = ngx_now() + (seconds or PAUSE)
    read()
  end
  calling = false
  if waiting > 0 then
    ended:post(waiting)
  end
end

-- await(now) -> true: the request has waited, and the keys may be newer; or false. now: seconds since 1970
function _M.await(now)
  if not socket or waiting >= MAX_WAITING then
    return false
  end
  if not calling then
    if now < quiet_until then
      return false
    end
    calling = timer_at(0, call) -- a timer ends independently of this request
    if not calling then
      return false
    end
  end
  waiting = waiting + 1
  ended:wait(MAX_WAIT)
  waiting = waiting - 1
  return true
end

function _M.init_worker()
  if socket then
    ended = semaphore.new()
    read() -- a worker that replaces another one has the keys with which the master started
    timer_every(EVERY, function(is_exiting)
      if not is_exiting then
        read()
      end
    end)
  end
end

return _M
