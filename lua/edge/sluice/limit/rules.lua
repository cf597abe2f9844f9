-- Admits or refuses one request under several rules together, exactly, for all workers together. It decides and
-- returns: it never sleeps, exits or touches a header.
--
-- The caller passes an array of rules (policy.lua) and their number, after it has named the client of each (`aim`). The
-- array may be reused from call to call, as the results are: nothing here yields.
--
-- All buckets are read, judged and written under one lock, so a refusal by any rule takes nothing from the others. When
-- there is no room for a new bucket, the request is refused, unless the rule has on_error = "allow".

local clock = require "sluice.clock"
local count = require("sluice.count").add
local each = require("sluice.accel").select("each", "sluice.each")
local gcra = require "sluice.limit.gcra"
local store = require("sluice.accel").select("store", "sluice.limit.store")

local decide, state_of, wait_of = gcra.decide, gcra.state, gcra.wait
local bucket_of, enter, leave = store.bucket, store.enter, store.leave
local read, refuses, reserve, write = store.read, store.refuses, store.reserve, store.write
local is_current = store.is_current
local now_us = clock.now
local sub = string.sub

local IPV6 = 8 -- bytes of the key of an IPv6 client, see address.lua

-- By position of the rule in the caller's array, for the latest call:
-- buckets   the bucket of the client that `aim` named
-- backlog   what the bucket holds (gcra's unit), or false where its bucket could not be used and the rule was skipped
-- over      true where a shadow rule would have refused
-- is_new    whether the bucket was not in the store
local buckets, backlog, over, is_new = {}, {}, {}, {}
local any_new = false

local _M = { backlog = backlog, over = over }

-- init(shared_dict): call it in init_worker_by_lua, before prepare. Raises an error when the dict cannot hold buckets.
-- All workers share the buckets of one dict; they survive a reload.
_M.init = store.init

-- prepare(rule): call it once for each rule. rule.prefix distinguishes the buckets of rules. rule.network is how many
-- bytes of the key of an IPv6 client count, or nil: all.
_M.prepare = store.prepare

-- network_of(rule, client) -> what the rule counts as one client: of an IPv6 /64, its first bytes
local function network_of(rule, client)
  return #client == IPV6 and sub(client, 1, rule.network) or client
end

local aim = each(function(i, rules, client)
  local rule = rules[i]
  buckets[i] = bucket_of(rule, rule.network and network_of(rule, client) or client)
end)

-- aim(rules, from, to, client): the rules at these positions use the buckets of this client until the next call.
-- client: a string, an address or a buyer
function _M.aim(rules, from, to, client)
  aim(from, to, rules, client)
end

-- judge(from, to, rules, now) -> i, wait: the first rule from `from` to `to` that refuses, for another `wait`
-- microseconds; or nil
local judge = each(function(i, rules, now)
  local rule = rules[i]
  local tat, frac = read(buckets[i])
  local allowed, level = decide(rule, now, tat, frac)
  backlog[i], over[i], is_new[i] = level, not allowed, not tat
  any_new = any_new or not tat
  if not allowed and not rule.shadow then
    return i, wait_of(rule, level)
  end
end)

-- make_room(1, n, rules, now) -> nil: all writes of this turn will succeed; or i, err. It comes before the first write,
-- so that no write has to be undone.
local make_room = each(function(i, rules, now)
  if over[i] then
    return nil
  end
  local ok, err = reserve(buckets[i], now, is_new[i])
  if not ok then
    count(rules[i].failed)
    if not rules[i].lenient then
      return i, err
    end
    backlog[i] = false
  end
end)

-- take(1, n, rules, now): the buckets take the request
local take = each(function(i, rules, now)
  local rule, level = rules[i], backlog[i]
  if level and not over[i] then
    write(buckets[i], rule, now, level, state_of(rule, now, level))
  end
end)

-- unavailable(rules, n, err) -> what admit returns when the lock cannot be acquired
local function unavailable(rules, n, err)
  for i = 1, n do
    over[i], backlog[i] = false, false
    count(rules[i].failed)
    if not rules[i].lenient then
      return nil, i, err
    end
  end
  return true
end

-- admit(rules, n) -> true; or false, i, wait: rule i refuses for another `wait` microseconds; or nil, i, err: the
-- bucket of rule i could not be used and its on_error is "deny". After true, every bucket has taken the request, except
-- those with backlog[i] = false or over[i] = true. After any other result, no bucket has taken it.
function _M.admit(rules, n)
  if n == 0 then
    return true
  end
  local now, err = enter()
  if not now then
    return unavailable(rules, n, err)
  end
  any_new = false
  local i, detail = judge(1, n, rules, now)
  local ok = not i
  if ok and any_new then
    i, detail = make_room(1, n, rules, now)
    ok = not i or nil
  end
  if ok then
    take(1, n, rules, now)
  end
  leave()
  return ok, i, detail
end

-- peek(rules, n) -> true; or false, i, wait: rule i refuses now. It takes nothing and needs no lock: it refuses a flood
-- before anything expensive is done for it. After true, admit may still refuse.
function _M.peek(rules, n)
  local i, wait = judge(1, n, rules, now_us())
  if not i or not is_current(buckets[i]) then
    return true
  end
  return false, i, wait
end

local refused = each(function(i, rules, client)
  local rule = rules[i]
  local wait = not rule.shadow and refuses(rule, rule.network and network_of(rule, client) or client)
  if wait then
    return i, wait
  end
end)

-- refuses(rules, from, to, client) -> i, wait: the first of these rules that refuses this client now; or nil. It needs
-- no lock and counts nothing. After nil, admit may still refuse.
function _M.refuses(rules, from, to, client)
  return refused(from, to, rules, client)
end

-- live() -> how many buckets are in use, and for how many there is room; both are estimates
_M.live = store.live

-- repair(): see limit/lock.lua
_M.repair = store.repair

return _M
