-- Runs the source of a policy as Lua without libraries, with bounds on steps and memory.

local ffi = require "ffi"

local dialect = require "sluice.policy.dialect"

local C = ffi.C

ffi.cdef [[
int sluice_open(const char *path, int flags) __asm__("open");
long sluice_read(int file, void *to, unsigned long size) __asm__("read");
int sluice_close(int file) __asm__("close");
const char *sluice_strerror(int error) __asm__("strerror");
]]

local MAX_SIZE = 64 * 1024 -- bytes of source
local MAX_STEPS = 20000    -- a policy with the most rules allowed takes some 2,000
local MAX_ROOM = 4 * 1024  -- KiB of memory
local MAX_STRING = 4 * 1024 -- bytes of any one string
local MAX_CALLS = 32       -- calls within calls
local MAX_DEPTH = 100      -- brackets within brackets

local CHUNK = "=policy" -- the name of the file in messages of Lua: a real name could look like a position

local _M = {}

-- giant() -> whether a string in the registers of the policy's running function is too long
local function giant()
  local i = 1
  while true do
    local name, value = debug.getlocal(3, i)
    if not name then
      return false
    elseif type(value) == "string" and #value > MAX_STRING then
      return true
    end
    i = i + 1
  end
end

local function limited(chunk)
  local deepest = MAX_CALLS + 4 -- as seen from the hook: the hook, the functions of the policy, pcall and its caller
  local steps, room = 0, collectgarbage("count") + MAX_ROOM
  -- Hooks do not run in machine code.
  jit.off(chunk, true)
  debug.sethook(function()
    steps = steps + 1
    local what
    if steps > MAX_STEPS then
      what = "runs for more than " .. MAX_STEPS .. " steps: is there an endless loop?"
    elseif collectgarbage("count") > room then
      what = "uses more than " .. MAX_ROOM / 1024 .. " MiB: no policy needs that"
    elseif giant() then
      what = "makes a string of more than " .. MAX_STRING .. " bytes: no field needs that"
    elseif debug.getinfo(deepest, "l") then
      what = "stack overflow: calls within calls, more than " .. MAX_CALLS .. " deep"
    end
    if what then
      debug.sethook() -- the next step is not the policy's
      error("policy:" .. debug.getinfo(2, "l").currentline .. ": " .. what, 0)
    end
  end, "", 1)
  -- Strings reach the string library through their metatable, also in an empty environment.
  local strings = getmetatable("")
  local library = strings.__index
  strings.__index = nil
  local ok, result = pcall(chunk)
  strings.__index = library
  debug.sethook()
  return ok, result
end

-- position(message) -> line, text of an error message of Lua
local function position(message)
  local line, text = tostring(message):match("^policy:(%d+): ?(.*)$")
  return tonumber(line), text or tostring(message)
end

local O_NONBLOCK = 2048 -- Linux

-- read(path) -> source; or nil, err. Without io.open: the master would block on a pipe without a writer.
function _M.read(path)
  local file = C.sluice_open(path, O_NONBLOCK)
  local parts, size, n = {}, 0, file
  if file >= 0 then
    local chunk = ffi.new("char[?]", 4096)
    repeat
      n = tonumber(C.sluice_read(file, chunk, 4096))
      parts[#parts + 1] = n > 0 and ffi.string(chunk, n) or ""
      size = size + n
    until n <= 0 or size > MAX_SIZE
  end
  local why = n < 0 and ffi.string(C.sluice_strerror(ffi.errno()))
  if file >= 0 then
    C.sluice_close(file)
  end
  if why then
    return nil, "cannot be read: " .. why
  end
  return table.concat(parts)
end

-- run(source) -> true and what the chunk returned; or nil, err, line
function _M.run(source)
  if #source > MAX_SIZE then
    return nil, "larger than " .. MAX_SIZE .. " bytes: a policy is a few rules"
  end
  if source:byte(1) == 27 then
    return nil, "compiled Lua: write the policy as text"
  end
  local deep = dialect.too_deep(source, MAX_DEPTH)
  if deep then
    return nil, "more than " .. MAX_DEPTH .. " brackets within brackets: is one not closed?", deep
  end
  local what, where = dialect.foreign(source)
  if what then
    return nil, what, where
  end
  local chunk, err = load(source, CHUNK, "t", {})
  if not chunk then
    local line, text = position(err)
    return nil, text, line
  end
  local ok, result = limited(chunk)
  if not ok then
    local line, text = position(result)
    if text:find("^attempt to index") or text:find("^attempt to call") then
      text = text .. ": a policy has no libraries, and can call only what it defines itself"
    end
    return nil, text, line
  end
  return true, result
end

return _M
