-- notify: sale notifications over pub/sub (backend/events/salechange). No correctness depends on them.

-- notify publishes a notification of this kind. sale is the key of the sale; left and version may be nil.
local function notify(sale, kind, left, version)
  local prefix, id = string.match(sale, '^(.-)sale:(.*)$')
  redis.pcall('PUBLISH', prefix .. 'sale_notifications', string.format('{"v":1,"type":"%s","sale":"%s"%s%s}', kind, id,
    left and string.format(',"left":%.0f', left) or '', version and ',"version":' .. version or ''))
end
