-- Admits or refuses one request under several rules at once, exactly, for all workers together. It decides and returns: it never
-- sleeps, exits or touches a header.
--
-- The caller passes parallel arrays: rules (see policy.lua), keys (which bucket of each rule), and how many. They may be reused from
-- call to call, as the results are: nothing here yields, and no table is made for a request.
--
-- All buckets are read, judged and written in one turn under one lock, so a refusal by any rule takes nothing from the others.
-- When there is no room for a new bucket its request is not admitted, unless its rule says on_error = "allow".

local clock = require "sluice.clock"
local ffi = require "ffi"
local gcra = require "sluice.limit.gcra"
local shared = require "sluice.shared"
local zone = require "sluice.limit.zone"

local decide, state_of, wait_of, empty_in = gcra.decide, gcra.state, gcra.wait, gcra.empty_in
local count = require("sluice.count").add
local enter, leave, mend, put = zone.enter, zone.leave, zone.mend, zone.put
local now_us = clock.now
local number, put_number = shared.number, shared.put
local copy = ffi.copy
local max = math.max

-- Bytes of what tells one bucket of a rule from the others; the longest is a subject.
local MOST_KEY = 255

local dict, buckets, memory -- the shared dict, the same as limit/zone.lua has it, and as shared.lua has it

-- Per rule of the latest call, in the caller's order.
-- backlog: what its bucket holds now (gcra's unit), or false where the rule was passed over because its bucket could not be used.
-- over: true where a shadow rule would have refused.
local backlog, over = {}, {}

-- What was there before this turn, for taking its writes back.
local old_tat, old_frac = {}, {}

local _M = { backlog = backlog, over = over }

local function store(_, key, value, ttl, flags)
  return put_number(memory, key, #key, value, ttl, flags)
end

-- init(shared_dict): call from init_by_lua. Errors when the buckets cannot be guarded.
function _M.init(shared_dict)
  local opened, err = zone.open(shared_dict, store)
  if not opened then
    error("the edge's buckets: " .. err, 0)
  end
  dict, buckets, memory = shared_dict, opened, shared.zone(shared_dict)
end

-- prepare(rule): call once per rule, before refuses
function _M.prepare(rule)
  rule.key_text, rule.key_start = ffi.new("unsigned char[?]", #rule.prefix + MOST_KEY), #rule.prefix
  copy(rule.key_text, rule.prefix, #rule.prefix)
end

-- read(i, key) -> tat, frac; tat is nil for an empty bucket
local function read(i, key)
  local tat, frac = number(memory, key, #key)
  if tat then
    old_tat[i], old_frac[i] = tat, frac
    return tat, frac
  end
  old_tat[i], old_frac[i] = false, 0
  return nil, 0
end

-- take_back(keys, n, now): undoes what this turn has written in the first n buckets
local function take_back(keys, n, now)
  for i = 1, n do
    if backlog[i] and not over[i] then
      local tat = old_tat[i]
      if tat then
        put(buckets, now, keys[i], tat, max(tat - now, 0), old_frac[i])
      else
        dict:delete(keys[i])
      end
    end
  end
end

-- write_one(i, rule, key, now) -> true, or nil, err where the rule may not be passed over
local function write_one(i, rule, key, now)
  local b = backlog[i]
  if not b or over[i] then
    return true
  end
  local tat, frac = state_of(rule, now, b)
  local ok, err = put(buckets, now, key, tat, empty_in(rule, b), frac)
  if ok then
    return true
  end
  count(rule.failed)
  backlog[i] = false
  if rule.lenient then
    return true
  end
  return nil, err
end

-- judge_one(i, rule, key, now) -> true; false, wait
local function judge_one(i, rule, key, now)
  local tat, frac = read(i, key)
  over[i] = false
  local allowed, b = decide(rule, now, tat, frac)
  backlog[i] = b
  if not allowed then
    if not rule.shadow then
      return false, wait_of(rule, b)
    end
    over[i] = true
  end
  return true
end

-- Nearly every request has one rule or two, and these are written out below: LuaJIT gives up on loops that run once or twice, and would
-- interpret what it could compile.

-- judge(rules, keys, n, now) -> true; false, i, wait
local function judge(rules, keys, n, now)
  local ok, detail = judge_one(1, rules[1], keys[1], now)
  if not ok then
    return ok, 1, detail
  end
  if n == 1 then
    return true
  end
  ok, detail = judge_one(2, rules[2], keys[2], now)
  if not ok then
    return ok, 2, detail
  end
  for i = 3, n do
    ok, detail = judge_one(i, rules[i], keys[i], now)
    if not ok then
      return ok, i, detail
    end
  end
  return true
end

-- write(rules, keys, n, now) -> true; nil, i, err
local function write(rules, keys, n, now)
  local ok, err = write_one(1, rules[1], keys[1], now)
  if not ok then
    return nil, 1, err
  end
  if n == 1 then
    return true
  end
  ok, err = write_one(2, rules[2], keys[2], now)
  if not ok then
    take_back(keys, 1, now)
    return nil, 2, err
  end
  for i = 3, n do
    ok, err = write_one(i, rules[i], keys[i], now)
    if not ok then
      take_back(keys, i - 1, now)
      return nil, i, err
    end
  end
  return true
end

-- peek(rules, keys, n) -> true; or false, i, wait: rule i would refuse now, for another `wait` microseconds
-- Takes nothing and takes no lock: good for turning a flood away before anything dear is done for it. A `true` promises nothing.
function _M.peek(rules, keys, n)
  if n == 0 then
    return true
  end
  return judge(rules, keys, n, now_us())
end

-- refuses_one(rule, key, n) -> wait, or nil. The clock is read after the bucket: whatever others have done to it in between made it fuller.
local function refuses_one(rule, key, n)
  if rule.shadow or n > MOST_KEY then
    return nil
  end
  local text, start = rule.key_text, rule.key_start
  copy(text + start, key, n)
  local tat, frac = number(memory, text, start + n)
  if not tat then
    return nil
  end
  local allowed, b = decide(rule, now_us(), tat, frac)
  return not allowed and wait_of(rule, b) or nil
end

-- refuses(rules, from, to, key, n) -> i, wait: of these rules in their order, i is the first that refuses now; or nil. The key is n bytes of
-- memory, or a string. It takes no lock, counts nothing and leaves no trace: whoever is not refused here is still to be asked.
function _M.refuses(rules, from, to, key, n)
  if from > to then
    return nil
  end
  local wait = refuses_one(rules[from], key, n)
  if wait then
    return from, wait
  end
  if from == to then
    return nil
  end
  wait = refuses_one(rules[from + 1], key, n)
  if wait then
    return from + 1, wait
  end
  for i = from + 2, to do
    wait = refuses_one(rules[i], key, n)
    if wait then
      return i, wait
    end
  end
end

-- admit(rules, keys, n) -> true; or false, i, wait as for peek; or nil, i, err: the bucket of rule i could not be used and the rule says deny
-- After true, every bucket has taken the request, except where `backlog` or `over` say otherwise. After anything else, none has.
function _M.admit(rules, keys, n)
  if n == 0 then
    return true
  end
  local now, why = enter(buckets)
  if not now then
    for i = 1, n do
      over[i], backlog[i] = false, false
      count(rules[i].failed)
      if not rules[i].lenient then
        return nil, i, why
      end
    end
    return true
  end
  local ok, i, detail = judge(rules, keys, n, now)
  if ok then
    ok, i, detail = write(rules, keys, n, now)
  end
  leave(buckets)
  return ok, i, detail
end

-- mend(): see limit/lock.lua
function _M.mend()
  mend(buckets)
end

return _M
