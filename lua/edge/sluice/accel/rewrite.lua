-- Accelerator: judges nearly all requests in nginx's memory, without making Lua strings that are new with each request.
-- Stands in for sluice/rewrite.lua. New strings are slow: LuaJIT's string table and its garbage collector access memory
-- for them that is not in the processor's cache.
--
-- It relies on the assumptions of accel/head.lua and accel/variables.lua. It leaves a request to the plain module
-- unless
--   * accel/head.lua has read its head
--   * its request line and its host are those of earlier requests that were well formed
--   * its client is an IPv4 address, its own or that of one hop behind a trusted proxy

local accel = require "sluice.accel"
local access = require "sluice.access"
local client = require "sluice.client"
local clock = require "sluice.clock"
local ffi = require "ffi"
local get_request = require("resty.core.base").get_request
local head = accel.need("head", "sluice.head")
local refusal_cache = require "sluice.refusal_cache"
local request_id = require "sluice.request_id"
local rewrite = require "sluice.rewrite"
local split = accel.select("split", "sluice.split") -- ends a compiled trace, decides nothing
local variables = accel.need("variables", "sluice.variables")
require "resty.core.var" -- declares ngx_http_lua_ffi_var_set

local C = ffi.C
local cast, copy, ffi_string = ffi.cast, ffi.copy, ffi.string
local find, length_of, set, set_at = variables.find, variables.length, variables.set, variables.set_at
local is_internal, get_method = ngx.req.is_internal, ngx.req.get_method
local headers, look = head.headers, head.look
local now_us = clock.now
local ngx_var = ngx.var
local judge_plainly = rewrite.judge
local is_state, sent_at, refuses_early = refusal_cache.is_state, refusal_cache.sent_at, access.refuses_early

ffi.cdef [[
int sluice_same_text(const unsigned char *at, const char *text, size_t n) __asm__("memcmp");
int sluice_ipv4(int family, const unsigned char *text, void *out) __asm__("inet_pton");
]]

local AF_INET, IPV4, MAX_IPV4 = 2, 4, 15 -- Linux; bytes of an address, and of its text
local ONE = 49 -- in HTTP/1.x
local BYTES = ffi.typeof("const unsigned char *")
local ID = "sluice_request_id"
local MESSAGE = 256 -- bytes for an error of ngx_lua

-- After this worker has found no refusal of a sale, it does not look that sale up again for this time (us).
local QUIET = 1000

-- Request lines that were well formed, by their text:
--   text    the line
--   path    decoded and without a query
--   own     what rewrite.reserved returns for the path
--   chosen  the rules, see plan.lua
--   sale    whether the refusal cache may have a refusal for it
--   quiet   until when the sale needs no lookup (us)
local MAX_LINES = 1024
local lines, count = {}, 0
local last, last_host = { text = "" }, "\0" -- no host has a zero byte

-- Keys of clients by address, so that a known client needs no new string. Trusted peers by address.
local MAX_CLIENTS = 65536
local keys, key_count = {}, 0
local trusted, trusted_count = {}, 0

local number = ffi.new("union { uint32_t number; unsigned char bytes[4]; }")
local lowercase, message = ffi.new("unsigned char[64]"), ffi.new("unsigned char[?]", MESSAGE)
local message_size = ffi.new("size_t[1]")

local _M = {}

local function same(at, n, text)
  return n == #text and C.sluice_same_text(at, text, n) == 0
end

-- remember(text): the plain module has let this request pass; its line may be used for later ones
local function remember(text)
  local host = ngx_var.http_host
  if not host or #text + #host > rewrite.MAX_LINE or ngx_var.sluice_odd_line ~= "0" then
    return
  end
  if count >= MAX_LINES then
    lines, count = {}, 0
  end
  local path, method = ngx_var.uri, get_method()
  if method == "OPTIONS" then -- the plain module finds preflights
    return
  end
  lines[text] = {
    text = text, path = path, chosen = access.plan_of(method, path), own = rewrite.reserved(path),
    sale = method == "POST", quiet = 0,
  }
  count = count + 1
end

-- line_of(value) -> the known line of this request, or nil
local function line_of(value)
  local n = length_of(value)
  if same(value.data, n, last.text) then
    return last
  end
  local line = lines[ffi_string(value.data, n)]
  if line then
    last = line
  end
  return line
end

-- is_known_host(at, n) -> whether a request with this host was well formed
local function is_known_host(at, n)
  if same(at, n, last_host) then
    return true
  elseif n > rewrite.MAX_LINE then
    return false
  end
  local host = ffi_string(at, n)
  if not rewrite.has_accepted_host(host) then
    return false
  end
  last_host = host
  return true
end

-- trusts_peer() -> whether the peer, in `number`, is a trusted proxy; nil where there are none
local function trusts_peer()
  local n = number.number
  local known = trusted[n]
  if known == nil then
    if trusted_count >= MAX_CLIENTS then
      trusted, trusted_count = {}, 0
    end
    known = client.trusts(ffi_string(number.bytes, IPV4))
    if known ~= nil then
      trusted[n], trusted_count = known, trusted_count + 1
    end
  end
  return known
end

-- key_of(r, seen) -> the key of the client, see sluice/client.lua, and true when the header names it; or nil
local function key_of(r, seen)
  local peer = find(r, "binary_remote_addr")
  if not peer or length_of(peer) ~= IPV4 then
    return nil
  end
  copy(number.bytes, peer.data, IPV4)
  local relayed = false
  if trusts_peer() then
    if find(r, "proxy_protocol_addr") then
      return nil
    elseif seen.forwarded ~= nil then
      if seen.forwarded_length > MAX_IPV4 or C.sluice_ipv4(AF_INET, seen.forwarded, number.bytes) ~= 1 then
        return nil
      end
      relayed = true
    end
  end
  local n = number.number
  local key = keys[n]
  if not key then
    if key_count >= MAX_CLIENTS then
      keys, key_count = {}, 0
    end
    key = ffi_string(number.bytes, IPV4)
    keys[n], key_count = key, key_count + 1
  end
  return key, relayed
end

-- judge_sale(line) -> see refusal_cache.judge
local function judge_sale(line)
  local now = now_us()
  if now < line.quiet then
    return sent_at(now)
  elseif refusal_cache.is_quiet(line.path, now) then
    line.quiet = now + QUIET
    return sent_at(now)
  end
  return refusal_cache.judge(line.path, line.text, headers, true)
end

-- judge_line(r, value, line) -> see judge; or nil: it is left to the plain module
local function judge_line(r, value, line)
  local seen = look(r, length_of(value))
  if not seen or seen.host == nil or not is_known_host(seen.host, seen.host_length)
    or seen.body ~= nil and seen.body_length > 4 then
    return nil
  end
  local key, relayed = key_of(r, seen)
  if not key then
    return nil
  end
  message_size[0] = MESSAGE
  if C.ngx_http_lua_ffi_var_set(r, ID, #ID, lowercase, cast(BYTES, request_id.write_next()), request_id.SIZE, message,
    message_size) ~= 0 then
    return nil
  end
  set("sluice_odd_line", "0") -- so that nginx does not evaluate the regular expression of this variable
  if relayed then
    set_at(r, "sluice_client", seen.forwarded, seen.forwarded_length)
  end
  if line.own then
    ngx_var.sluice_client_key = key
    return line.own
  end
  local judged = ""
  if line.sale then
    judged = judge_sale(line)
    if is_state(judged) then
      return judged
    end
  end
  split()
  if refuses_early(line.chosen, key, headers) then
    refusal_cache.begin()
    return "over"
  end
  ngx_var.sluice_client_key = key
  return judged
end

-- judge() -> see sluice/rewrite.lua
function _M.judge()
  if is_internal() then
    return judge_plainly()
  end
  local r = get_request()
  local value = find(r, "request")
  local n = value and length_of(value) or 0
  if n < 3 or value.data[n - 3] ~= ONE then
    return judge_plainly()
  end
  refusal_cache.begin()
  local line = line_of(value)
  local judged = line and judge_line(r, value, line)
  if judged then
    return judged
  end
  judged = judge_plainly()
  if not line and judged ~= "malformed" and judged ~= "too_large" then
    remember(ffi_string(value.data, n))
  end
  return judged
end

return _M
