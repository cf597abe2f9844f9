-- Admits or refuses one request under several rules at once, exactly, for all workers together. It decides and returns: it never
-- sleeps, exits or touches a header.
--
-- The caller passes rules (see policy.lua) in an array, and how many, after it has said of each whose bucket is meant (`aim`). The array may be
-- reused from call to call, as the results are: nothing here yields, and no table is made for a request.
--
-- All buckets are read, judged and written in one turn under one lock, so a refusal by any rule takes nothing from the others.
-- When there is no room for a new bucket its request is not admitted, unless its rule says on_error = "allow".

local buckets = require "sluice.limit.buckets"
local chance = require "sluice.chance"
local clock = require "sluice.clock"
local gcra = require "sluice.limit.gcra"
local lock = require "sluice.limit.lock"
local name = require "sluice.limit.name"
local refused = require "sluice.limit.refused"
local slab = require "sluice.limit.slab"

local decide, state_of, wait_of = gcra.decide, gcra.state, gcra.wait
local count = require("sluice.count").add
local acquire, release = lock.acquire, lock.release
local aim_one, claim, find, hash, is, keep, still = buckets.aim, buckets.claim, buckets.find, buckets.hash, buckets.is, buckets.keep, buckets.still
local read, write_to = buckets.read, buckets.write
local recall, remember = refused.recall, refused.remember
local now_us = clock.now

local NO_ROOM = "no memory"

-- What a zone keeps for the entries of its dict, in bytes: the lock is one.
local RESERVE = 8192

local held, t -- the lock, and the table of buckets that it guards

-- Per rule of the latest call, in the caller's order.
-- backlog: what its bucket holds now (gcra's unit), or false where the rule was passed over because its bucket could not be used.
-- over: true where a shadow rule would have refused.
local backlog, over = {}, {}

-- Where the buckets are, or -1; and whether one of them is nowhere.
local places, missing = {}, false

local _M = { backlog = backlog, over = over }

-- build(dict) -> the address of a new table, which has nearly all of the zone; or nil: there is no room
local function build(dict)
  local pages = buckets.pages(dict:free_space() - RESERVE)
  if pages < 1 then
    return nil
  end
  local size = buckets.size(pages)
  local memory = slab.allocate(dict, size)
  if not memory then
    return nil
  end
  slab.clear(memory, size)
  buckets.make(memory, pages, chance.bytes(16))
  return slab.address(memory)
end

-- init(shared_dict): call from init_by_lua, before prepare. Errors when the buckets cannot be guarded. Of one dict all workers have the same buckets,
-- over a reload too.
function _M.init(shared_dict)
  local opened, err = lock.of(shared_dict)
  if opened then
    local now
    now, err = acquire(opened)
    opened = now and opened
  end
  if not opened then
    error("the edge's buckets: " .. err, 0)
  end
  local address = lock.beside(opened)
  if address == 0 then
    address = build(shared_dict)
    lock.set_beside(opened, address or 0)
  end
  release(opened)
  if not address then
    error("the edge's buckets: " .. NO_ROOM, 0)
  end
  held, t = opened, buckets.open(slab.pointer(address))
  name.init(t.secret)
  refused.forget()
end

-- prepare(rule): call once per rule, before the others. rule.prefix tells it from other rules.
function _M.prepare(rule)
  rule.bucket = { name = name.new(), tag = name.new(), a = 0, b = 0, mark = 0 }
  name.buyer(rule.bucket.tag, rule.prefix)
end

-- aim(rules, from, to, whose): of these rules the buckets of one client are meant, until the next call. whose: see limit/name.lua
function _M.aim(rules, from, to, whose)
  if from <= to then -- the first one by itself, because LuaJIT is at a loss with loops that run once
    local words = whose.words
    local h, g = hash(t, words)
    aim_one(t, rules[from].bucket, words, h, g)
    for i = from + 1, to do
      aim_one(t, rules[i].bucket, words, h, g)
    end
  end
end

-- reserve_one(i, rule, now) -> true: what the rule's bucket is to hold can be written, whatever becomes of the others; or nil, err where the rule may
-- not be passed over. The bucket is there then, and not one that the next may take; it holds as much as before.
local function reserve_one(i, rule, now)
  if not backlog[i] or over[i] then
    return true
  end
  local place, bucket = places[i], rule.bucket
  if place < 0 or not is(t, place, bucket) then -- a rule before this one may have made its bucket in the place of this one, which was empty
    place = claim(t, bucket, now)
    if not place then
      count(rule.failed)
      backlog[i] = false
      if rule.lenient then
        return true
      end
      return nil, NO_ROOM
    end
    places[i] = place
  end
  keep(t, place, now)
  return true
end

local function write_one(i, rule, now)
  local b = backlog[i]
  if b and not over[i] then
    write_to(t, places[i], state_of(rule, now, b))
  end
end

-- look(i, bucket) -> tat, frac; tat is nil where there is no bucket
local function look(i, bucket)
  local place = find(t, bucket)
  places[i] = place
  if place < 0 then
    missing = true
    return nil, 0
  end
  return read(t, place)
end

-- judge_one(i, rule, now) -> true; false, wait
local function judge_one(i, rule, now)
  local tat, frac = look(i, rule.bucket)
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

-- judge(rules, n, now) -> true; false, i, wait
local function judge(rules, n, now)
  missing = false
  local ok, detail = judge_one(1, rules[1], now)
  if not ok then
    return ok, 1, detail
  end
  if n == 1 then
    return true
  end
  ok, detail = judge_one(2, rules[2], now)
  if not ok then
    return ok, 2, detail
  end
  for i = 3, n do
    ok, detail = judge_one(i, rules[i], now)
    if not ok then
      return ok, i, detail
    end
  end
  return true
end

-- reserve(rules, n, now) -> true; nil, i, err
local function reserve(rules, n, now)
  for i = 1, n do
    local ok, err = reserve_one(i, rules[i], now)
    if not ok then
      return nil, i, err
    end
  end
  return true
end

-- write(rules, n, now) -> true; nil, i, err. Nothing is written before all can be: others read without the lock, and keep in mind who is refused
-- (limit/refused.lua).
local function write(rules, n, now)
  if missing then
    local ok, i, err = reserve(rules, n, now)
    if not ok then
      return ok, i, err
    end
  end
  write_one(1, rules[1], now)
  if n > 1 then
    write_one(2, rules[2], now)
    for i = 3, n do
      write_one(i, rules[i], now)
    end
  end
  return true
end

-- peek(rules, n) -> true; or false, i, wait: rule i would refuse now, for another `wait` microseconds
-- Takes nothing and takes no lock: good for turning a flood away before anything dear is done for it. A `true` promises nothing.
function _M.peek(rules, n)
  if n == 0 then
    return true
  end
  local ok, i, detail = judge(rules, n, now_us())
  if ok or not still(t, places[i], rules[i].bucket) then
    return true
  end
  return ok, i, detail
end

-- refuses_one(rule, words, h, g) -> wait, or nil. The clock is read after the bucket: whatever others have done to it in between made it fuller.
-- They may have given an empty one to somebody else meanwhile, so who is refused is looked at again.
local function refuses_one(rule, words, h, g)
  if rule.shadow then
    return nil
  end
  local bucket = rule.bucket
  aim_one(t, bucket, words, h, g)
  local whose = bucket.name.words
  local tat, frac = recall(h, whose)
  local allowed, b
  if tat then
    allowed, b = decide(rule, now_us(), tat, frac)
    if not allowed then
      return wait_of(rule, b)
    end
  end
  local place = find(t, bucket)
  if place < 0 then
    return nil
  end
  tat, frac = read(t, place)
  allowed, b = decide(rule, now_us(), tat, frac)
  if allowed or not still(t, place, bucket) then
    return nil
  end
  remember(h, whose, tat, frac)
  return wait_of(rule, b)
end

-- refuses(rules, from, to, whose) -> i, wait: of these rules in their order, i is the first that refuses this client now; or nil. It takes no lock,
-- counts nothing and leaves no trace: whoever is not refused here is still to be asked.
function _M.refuses(rules, from, to, whose)
  if from > to then
    return nil
  end
  local words = whose.words
  local h, g = hash(t, words)
  local wait = refuses_one(rules[from], words, h, g)
  if wait then
    return from, wait
  end
  if from == to then
    return nil
  end
  wait = refuses_one(rules[from + 1], words, h, g)
  if wait then
    return from + 1, wait
  end
  for i = from + 2, to do
    wait = refuses_one(rules[i], words, h, g)
    if wait then
      return i, wait
    end
  end
end

-- admit(rules, n) -> true; or false, i, wait as for peek; or nil, i, err: the bucket of rule i could not be used and the rule says deny
-- After true, every bucket has taken the request, except where `backlog` or `over` say otherwise. After anything else, none has.
function _M.admit(rules, n)
  if n == 0 then
    return true
  end
  local now, why = acquire(held)
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
  local ok, i, detail = judge(rules, n, now)
  if ok then
    ok, i, detail = write(rules, n, now)
  end
  release(held)
  return ok, i, detail
end

-- live() -> how many buckets hold something, roughly, and for how many there is room
function _M.live()
  return buckets.live(t, now_us()), buckets.capacity(t)
end

-- mend(): see limit/lock.lua
function _M.mend()
  lock.mend(held)
end

return _M
