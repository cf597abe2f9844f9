-- Buckets by texts, as tests name them. For tests only.

local rules = require "sluice.limit.rules"

local _M = {}

-- aim(list, keys): prepares rules that are not prepared, each of which is in the list once, and aims each at the bucket
-- of its key
function _M.aim(list, keys)
  for i, rule in ipairs(list) do
    if not rule.prepared then
      rule.prepared, rule.prefix = true, rule.prefix or "test:"
      rules.prepare(rule)
    end
    rules.aim(list, i, i, keys[i])
  end
end

-- take(list, keys) -> as rules.admit
function _M.take(list, keys)
  _M.aim(list, keys)
  return rules.admit(list, #list)
end

return _M
