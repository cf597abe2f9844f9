-- A lock that all workers of nginx share, made of one entry of a shared dict: safe_add succeeds in one worker at a
-- time.
--
-- The entry holds the identity of the worker that has the lock. It has no time to live: a worker that is paused (by a
-- debugger, by a virtual machine) still has the lock when it continues, so two workers never hold it at the same time.
-- When a holder has exited, the next worker that needs the lock takes it over. When a holder is paused, the others get
-- an error after WAIT.
--
-- The lock protects a few reads and writes of the dict, about a microsecond. It never yields to nginx's event loop.

local ffi = require "ffi"
local clock = require "sluice.clock"

local C = ffi.C
local get_pid = ngx.worker.pid
local now_us = clock.now
local io_open = io.open
local floor, match, tonumber, setmetatable = math.floor, string.match, tonumber, setmetatable

-- Functions of libc; see clock.lua for the names.
ffi.cdef [[
int sluice_kill(int pid, int signal) __asm__("kill");
int sluice_usleep(unsigned int us) __asm__("usleep");
]]

local ENTRY, SPARE, SUCCESSOR = "sluice: lock", "sluice: spare", "sluice: lock after "
local TAKEN = "shdict abused by other users: the entry \"" .. ENTRY .. "\" is not a lock"

-- A waiter tries SPINS times, then sleeps PAUSE between tries, for at most WAIT in total. After such a wait the worker
-- does not sleep again until it has had the lock, or until REST has passed: it serves other connections meanwhile.
local SPINS = 100
local PAUSE = 100 -- us
local WAIT = 500000 -- us
local REST = 5000000 -- us

-- An identity is a number below 2^53: the process id, and the time at which the process began (in clock ticks, 30
-- bits).
local UNIT = 2 ^ 30
local ESRCH = 3 -- Linux: no such process
local pid, identity

local _M = {}
local mt = { __index = _M }

-- began(process) -> when it began, and its state, one letter; or nil
local function began(process)
  local file = io_open("/proc/" .. process .. "/stat", "r")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  -- After the command in parentheses: the state is field 3, the start time field 22.
  local state, ticks = match(text or "", "^.*%) (%a)" .. (" %S+"):rep(18) .. " (%d+)")
  return ticks and tonumber(ticks) % UNIT, state
end

-- own_identity() -> the identity of this worker
local function own_identity()
  if pid ~= get_pid() then -- after a fork
    pid = get_pid()
    identity = pid * UNIT + (began(pid) or 0)
  end
  return identity
end

-- is_identity(value) -> whether the value of an entry can be the identity of a worker
local function is_identity(value)
  return type(value) == "number" and value >= UNIT and value % 1 == 0
end

-- has_exited(holder) -> whether the process of this identity has exited. A zombie has: it cannot continue.
local function has_exited(holder)
  local process = floor(holder / UNIT)
  if C.sluice_kill(process, 0) ~= 0 then
    return ffi.errno() == ESRCH
  end
  local ticks, state = began(process)
  return ticks ~= nil and (ticks ~= holder % UNIT or state == "Z" or state == "X")
end

-- new(dict) -> the lock of a shared dict: all workers share one
function _M.new(dict)
  -- Keeps the memory for one successor entry, which must fit when the dict is full.
  dict:safe_add(SPARE, 0)
  return setmetatable({ dict = dict, resting_until = 0 }, mt)
end

-- forget(dict, from, last): deletes the successor entries of the holders from `from` to `last`, and keeps the memory
-- for the next such entry. These holders have exited. A worker that adds one of the entries again does not get the
-- lock, because by then the entry of the lock names another holder.
local function forget(dict, from, last)
  while from and from ~= last do
    local successor = dict:get(SUCCESSOR .. from)
    dict:delete(SUCCESSOR .. from)
    from = successor
  end
  dict:delete(SUCCESSOR .. last)
  dict:safe_add(SPARE, 0)
end

-- take_over(self, holder, me) -> true: this worker has the lock of `holder`, which has exited. Several workers may try.
-- The one that adds the entry of the successor wins. If it exits before it has taken the lock, its own successor does.
local function take_over(self, holder, me)
  local dict, last = self.dict, holder
  while has_exited(last) do
    dict:delete(SPARE)
    dict:safe_add(SUCCESSOR .. last, me)
    local winner = dict:get(SUCCESSOR .. last)
    if winner == me then -- from this call, or from an earlier one that an error ended
      local current = dict:get(ENTRY)
      local won = current == holder or current == last
      if won then
        dict:set(ENTRY, me)
      end
      forget(dict, holder, last)
      return won
    elseif not winner then -- no room
      dict:flush_expired()
      return false
    end
    last = winner
  end
  return false
end

-- try(self, me) -> true; false; or nil, err
local function try(self, me)
  local dict = self.dict
  local ok, err = dict:safe_add(ENTRY, me)
  if ok then
    return true
  elseif err ~= "exists" then
    dict:flush_expired()
    return nil, err
  end
  return false
end

-- wait(self, me) -> true; or nil, err
local function wait(self, me)
  for _ = 1, SPINS do
    local ok, err = try(self, me)
    if ok or ok == nil and err ~= "no memory" then
      return ok, err
    end
  end
  local from = now_us()
  local ok, err
  repeat
    local holder, fault = self.dict:get(ENTRY) -- the fault is a string: the entry is a list
    if holder == me then -- an error ended the last turn of this worker before its release
      return true
    elseif type(fault) == "string" or holder ~= nil and not is_identity(holder) then
      return nil, TAKEN
    elseif holder and take_over(self, holder, me) then
      return true
    end
    ok, err = try(self, me)
    if ok then
      return true
    end
    if from < self.resting_until then
      break
    end
    C.sluice_usleep(PAUSE)
  until now_us() - from > WAIT
  if ok == nil then
    return nil, err
  end
  if from >= self.resting_until then
    self.resting_until = now_us() + REST
  end
  return nil, "another worker holds the lock"
end

-- acquire(self) -> the time (see clock.lua), read when this worker has the lock; or nil, err. Between acquire and
-- release the caller must not yield.
function _M.acquire(self)
  local me = own_identity()
  if not self.dict:safe_add(ENTRY, me) then
    local ok, err = wait(self, me)
    if not ok then
      return nil, err
    end
  end
  self.held, self.resting_until = true, 0
  return now_us()
end

function _M.release(self)
  self.held = false
  self.dict:delete(ENTRY)
end

-- repair(self): releases the lock if an error has ended a turn of this worker before its release. Call it from a timer.
function _M.repair(self)
  if self.held then
    self:release()
  end
end

return _M
