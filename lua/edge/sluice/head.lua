-- Judges how the head of a request was written. nginx accepts more than the Go gateway: it ends lines at a bare line
-- feed, takes a line without a colon, and uses the first of two headers with one name. Where readers differ, requests
-- can be smuggled, so both edges refuse such a head.
--
-- In HTTP/1 the text of the head is judged. nginx has overwritten the byte behind each name and value, and ngx_lua
-- restores it as far as it can: " LF" and CR CR LF at the end of a line look like CRLF. docs/trust.md explains why that
-- does no harm. In HTTP/2 there are only names and values.

local address = require("sluice.address").parse

local ngx = ngx
local ngx_var, ngx_req = ngx.var, ngx.req
local re_find = ngx.re.find
local byte, find, gmatch = string.byte, string.find, string.gmatch
local gsub, match, sub = string.gsub, string.match, string.sub
local concat, max = table.concat, math.max
local ipairs, pairs, setmetatable, type = ipairs, pairs, setmetatable, type

-- Bounds of a head, the same as in gateway/proxy/validator.go. nginx itself bounds a line of HTTP/1
-- (conf.d/10-hygiene.conf), and in HTTP/2 the compressed one.
local MAX_HEAD = 16384 -- bytes, from the method to the blank line
local MAX_LINE = 8192 -- bytes, with CRLF
local MAX_LINES = 100

local MAX_LENGTH = 18 -- digits of a Content-Length; nginx reads any number of zeroes

local ONE, BRACKET = byte("1"), byte("[") -- ONE: in HTTP/1.x

-- A head that needs no further checks: each line ends in CRLF and is "name: value"; a name consists of the letters of
-- RFC 9110, section 5.6.2, without the underscore; a value has no control character but a tab.
local WELL_FORMED = [[\A[^\r\n]++\r\n(?:[!#$%&'*+.^`|~0-9A-Za-z-]++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+\r\n\z]]
local NAME = "^[!#$%%&'*+%-.^_`|~%w]+$"
local CONTROL = "[%z\1-\8\10-\31\127]"

-- Headers that may come once only: readers differ about which of two they take.
local ONCE = { token = true, authorization = true, ["idempotency-key"] = true, ["transfer-encoding"] = true }

-- Headers that the edge reads.
local NOTED = { ["x-forwarded-for"] = true, ["content-length"] = true, host = true }

-- The other headers that pass to a backend (snippets/proxy.conf): of several lines of one name the first counts.
local PASSED = {}
for _, name in ipairs {
  "accept", "accept-encoding", "accept-language", "if-none-match", "if-modified-since", "range",
  "last-event-id", "content-type", "origin", "access-control-request-method", "access-control-request-headers",
  "user-agent", "traceparent",
  "tracestate", "webhook-id", "webhook-timestamp", "webhook-signature",
} do
  PASSED[name] = true
end

-- Preconditions that no backend gets. nginx evaluates them for a page in its cache, also when they are empty, which
-- snippets/preconditions.conf does not see.
local PRECONDITIONS = { ["if-match"] = true, ["if-unmodified-since"] = true }

-- Headers of a connection in HTTP/1. In HTTP/2 they make a request malformed (RFC 9113, section 8.2.2).
local CONNECTION = { "transfer-encoding", "connection", "keep-alive", "proxy-connection", "upgrade" }

local _M = { PASSED = PASSED, MAX_HEAD = MAX_HEAD, MAX_LENGTH = MAX_LENGTH }

-- lines(text) -> the number of header lines of a text in which each line has a colon and ends in CRLF; or nil. ngx_lua
-- puts a line feed in the place of the first space behind a value.
local function lines(text)
  text = gsub(text, "([^\r])\n *\r\n", "%1\r\n")
  if sub(text, -4) ~= "\r\n\r\n" or find(text, "[^\r]\n") then
    return nil
  end
  local n = 0
  for line in gmatch(sub(text, find(text, "\n", 1, true) + 1, -3), "([^\n]*)\n") do
    if not find(line, ":", 2, true) then
      return nil
    end
    n = n + 1
  end
  return n
end

-- is_of_connection(headers) -> whether a head of HTTP/2 has a header of an HTTP/1 connection
local function is_of_connection(headers)
  for i = 1, #CONNECTION do
    if headers[CONNECTION[i]] then
      return true
    end
  end
  return headers.te ~= nil and headers.te ~= "trailers"
end

-- judge_closely(headers, text) -> "malformed"; or nil. text: nil in HTTP/2
local function judge_closely(headers, text)
  if not text and is_of_connection(headers) then
    return "malformed"
  end
  local n = 0
  for name, values in pairs(headers) do
    if not find(name, NAME) then
      return "malformed"
    end
    if type(values) ~= "table" then
      values = { values }
    end
    for _, value in ipairs(values) do
      if find(value, CONTROL) then
        return "malformed"
      end
    end
    n = n + #values
  end
  -- A line without a colon, or one that ends in a bare line feed, looks like part of the next line: then the text has
  -- fewer lines than nginx has read.
  if text and lines(text) ~= n then
    return "malformed"
  end
end

-- has_empty(headers) -> whether a header has no value. A line without a colon is such a header for nginx, and in the
-- text a colon may stand in the place of its line feed.
local function has_empty(headers)
  for _, values in pairs(headers) do
    if values == "" then
      return true
    elseif type(values) == "table" then
      for _, value in ipairs(values) do
        if value == "" then
          return true
        end
      end
    end
  end
  return false
end

-- drop_misread(headers): removes empty preconditions, and headers that nginx would take for one of those above, because
-- it reads an underscore as a hyphen. The Go gateway does not read them either.
local function drop_misread(headers)
  for name, value in pairs(headers) do
    local meant = find(name, "_", 1, true) and gsub(name, "_", "-")
    if meant and (ONCE[meant] or NOTED[meant] or PASSED[meant]) or value == "" and PRECONDITIONS[name] then
      ngx_req.clear_header(name)
    end
  end
end

-- keep_first(headers, name, value): from 1.23 on nginx would pass on all lines of this name, joined by commas
local function keep_first(headers, name, value)
  ngx_req.clear_header(name) -- set_header alone would leave some of the lines
  ngx_req.set_header(name, value)
  headers[name] = value
end

-- unpacked(headers, request) -> the bytes that a head of HTTP/2 would have in HTTP/1, and those of its longest line:
-- how well it was compressed must not matter
local function unpacked(headers, request)
  local length, longest = #request + 4, #request + 2
  for name, values in pairs(headers) do
    if type(values) ~= "table" then
      values = { values }
    end
    for _, value in ipairs(values) do
      length, longest = length + #name + #value + 4, max(longest, #name + #value + 4)
    end
  end
  return length, longest
end

-- is_too_large(headers, request, text) -> whether the head exceeds a bound. text: nil in HTTP/2
local function is_too_large(headers, request, text)
  if text then
    return #text > MAX_HEAD
  end
  local length, longest = unpacked(headers, request)
  return length > MAX_HEAD or longest > MAX_LINE
end

-- merge_lines(headers) -> false: a header that may come once came twice; or true: each header is one text
local function merge_lines(headers)
  for name, value in pairs(headers) do
    if type(value) == "table" then
      if ONCE[name] then
        return false
      elseif PASSED[name] then
        keep_first(headers, name, value[1])
      else
        headers[name] = concat(value, ", ")
      end
    end
  end
  return true
end

-- is_host(host) -> whether a host in brackets is an IPv6 address. $sluice_odd_line judges the others.
local function is_host(host)
  if byte(host) ~= BRACKET then
    return true
  end
  local inside = match(host, "^%[([^%]]*:[^%]]*)%]")
  return inside ~= nil and address(inside) ~= nil
end

-- read(request) -> headers, a table of texts by name in small letters; or nil and what is wrong: "malformed" or
-- "too_large". request: the request line. Call it before the body is read.
function _M.read(request)
  local headers, err = ngx_req.get_headers(MAX_LINES)
  if err then -- more lines
    return nil, "too_large"
  end
  setmetatable(headers, nil) -- a name that is not there would be looked up once more, with hyphens
  local text = byte(request, -3) == ONE and ngx_req.raw_header() or nil
  if is_too_large(headers, request, text) then
    return nil, "too_large"
  end
  if not text or not re_find(text, WELL_FORMED, "jo") or has_empty(headers) then
    local fault = judge_closely(headers, text)
    if fault then
      return nil, fault
    end
    drop_misread(headers)
  end
  if not merge_lines(headers) then
    return nil, "malformed"
  end
  local length, host = headers["content-length"], headers.host
  if length and #length > MAX_LENGTH or host and not is_host(host) then
    return nil, "malformed"
  end
  if headers["idempotency-key"] == "" then
    ngx_var.sluice_idempotency_key = '""'
  end
  return headers
end

return _M
