-- The bodies of the edge's refusals: RFC 9457 problem details, byte for byte those of internal/problem in Go.

local _M = {}

_M.content_type = "application/problem+json"

local function body(kind, title, status, detail, code, more)
  return ('{"type":"%s","title":"%s","status":%d,"detail":"%s","code":"%s"%s}'):format(kind, title, status, detail, code, more or "")
end

_M.unauthorized = body("about:blank", "Unauthorized", 401, "A valid token is needed.", "unauthorized")

_M.unavailable = body("about:blank", "Temporarily unavailable", 503, "The service is busy. Please try again in a moment.",
  "temporarily-unavailable")

-- quota_exceeded(name) -> body; name is a rule's, which needs no escaping in JSON but for the quotes around it
function _M.quota_exceeded(name)
  return body("https://iana.org/assignments/http-problem-types#quota-exceeded", "Too many requests", 429,
    ('Too many requests: the policy \\"%s\\" allows no more right now.'):format(name), "quota-exceeded",
    (',"violated-policies":["%s"]'):format(name))
end

return _M
