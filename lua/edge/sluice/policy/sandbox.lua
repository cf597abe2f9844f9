-- Runs the source of a policy: as Lua, but with nothing to call, few steps and little room, so that it can compute nothing but a table.

local MAX_SIZE = 64 * 1024 -- bytes of source
local MAX_STEPS = 20000    -- a policy with the most rules allowed takes some 2,000
local MAX_ROOM = 4 * 1024  -- KiB of memory

local CHUNK = "=policy" -- what Lua calls the file in its messages: a real name could be mistaken for a position

local _M = {}

local function limited(chunk)
  local steps, room = 0, collectgarbage("count") + MAX_ROOM
  -- Hooks do not fire in machine code.
  jit.off(chunk, true)
  debug.sethook(function()
    steps = steps + 1
    local what
    if steps > MAX_STEPS then
      what = "runs for more than " .. MAX_STEPS .. " steps: is there an endless loop?"
    elseif collectgarbage("count") > room then
      what = "uses more than " .. MAX_ROOM / 1024 .. " MiB"
    end
    if what then
      debug.sethook() -- or the next step, outside of the policy, would be one too many as well
      error("policy:" .. debug.getinfo(2, "l").currentline .. ": " .. what, 0)
    end
  end, "", 1)
  -- Every string reaches the string library through its metatable, even where the environment is empty.
  local strings = getmetatable("")
  local library = strings.__index
  strings.__index = nil
  local ok, result = pcall(chunk)
  strings.__index = library
  debug.sethook()
  return ok, result
end

-- position(message) -> line, text, from a message of Lua's
local function position(message)
  local line, text = tostring(message):match("^policy:(%d+): ?(.*)$")
  return tonumber(line), text or tostring(message)
end

-- read(path) -> source; or nil, why
function _M.read(path)
  local file, err = io.open(path, "rb")
  if not file then
    return nil, "cannot be read: " .. err:gsub("^.*: ", "")
  end
  local source = file:read(MAX_SIZE + 1)
  file:close()
  return source or ""
end

-- run(source) -> true and what the chunk returned; or nil, why, line
function _M.run(source)
  if #source > MAX_SIZE then
    return nil, "larger than " .. MAX_SIZE .. " bytes"
  end
  if source:byte(1) == 27 then
    return nil, "compiled Lua: a policy is text"
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
      text = text .. " (a policy has no libraries: it can call nothing that it does not define)"
    end
    return nil, text, line
  end
  return true, result
end

return _M
