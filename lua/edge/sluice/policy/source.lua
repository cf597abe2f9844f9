local ffi = require "ffi"

local C = ffi.C

ffi.cdef [[
int sluice_open(const char *path, int flags) __asm__("open");
long sluice_read(int file, void *to, unsigned long size) __asm__("read");
int sluice_close(int file) __asm__("close");
const char *sluice_strerror(int error) __asm__("strerror");
]]

local O_NONBLOCK = 2048 -- Linux
local ENOUGH = 65 * 1024 -- bytes: the parser rejects more than 64 KiB

-- read_source(path) -> the text of the policy file; or nil, err. Without io.open: the master would block on a pipe
-- without a writer.
return function(path)
  local file = C.sluice_open(path, O_NONBLOCK)
  local parts, size, n = {}, 0, file
  if file >= 0 then
    local chunk = ffi.new("char[?]", 4096)
    repeat
      n = tonumber(C.sluice_read(file, chunk, 4096))
      parts[#parts + 1] = n > 0 and ffi.string(chunk, n) or ""
      size = size + n
    until n <= 0 or size > ENOUGH
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
