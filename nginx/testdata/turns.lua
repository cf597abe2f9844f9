-- Turns of several workers over one small table of buckets, against a plain model of it: a number for each bucket, and no table. The clock is made
-- up; each worker has modules of its own, and so its own memory of who was refused. One of them dies in its turns. For tests only.

local ffi = require "ffi"

local max, random = math.max, math.random

local CLIENTS, WORKERS, MORTAL = 60, 3, 3 -- the third dies

local RULES = {
  { name = "a", count = 1, period = 60, burst = 0 },
  { name = "b", count = 3, period = 100, burst = 2 },
  { name = "c", count = 2, period = 81, burst = 3, lenient = true },
  { name = "d", count = 1, period = 30, burst = 1, lenient = true, shadow = true },
  { name = "e", count = 97, period = 1000, burst = 0 },
  { name = "f", count = 1, period = 400, burst = 1 },
  { name = "g", count = 3, period = 500, burst = 0, lenient = true },
}

local now = 0 -- us
local memory, opened -- of the buckets

-- worker(mortal) -> the edge's modules as one worker has them, and its rules
local function worker(mortal)
  local loaded = {
    ["sluice.chance"] = { bytes = function(n) return (("."):rep(n):gsub(".", function() return string.char(random(0, 255)) end)) end },
    ["sluice.clock"] = { now = function() return now end },
    ["sluice.limit.lock"] = {
      of = function() return {} end, acquire = function() return now end, release = function() end,
      beside = function() return opened end, set_beside = function(_, at) opened = at end,
    },
    ["sluice.limit.slab"] = {
      allocate = function(_, n)
        memory = ffi.new("char[?]", n)
        return memory
      end,
      address = function() return 1 end, pointer = function() return memory end, clear = function() end,
    },
  }
  local env, load
  function load(name)
    if not name:find("^sluice%.") then
      return require(name)
    end
    if not loaded[name] then
      local chunk = setfenv(assert(loadfile(assert(package.searchpath(name, package.path)))), env)
      if mortal then
        jit.off(chunk, true) -- hooks are for what is interpreted
      end
      loaded[name] = chunk() or true
    end
    return loaded[name]
  end
  env = setmetatable({ require = load }, { __index = _G })
  local w = { rules = load "sluice.limit.rules", buckets = load "sluice.limit.buckets", names = load "sluice.limit.name", mortal = mortal }
  w.ip, w.buyer = w.names.new(), w.names.new()
  return w
end

local workers = {}
for i = 1, WORKERS do
  workers[i] = worker(i == MORTAL)
end

-- begin(pages): from empty buckets, in a table of so many pages
local function begin(pages)
  opened = 0
  local dict = { free_space = function() return (pages + 1) * 4096 + 8192 end }
  for _, w in ipairs(workers) do
    w.rules.init(dict)
    w.of = {}
    for i, rule in ipairs(RULES) do
      local r = { prefix = rule.name .. ":", failed = "error test", tolerance = rule.burst * rule.period }
      for field, value in pairs(rule) do
        r[field] = value
      end
      w.rules.prepare(r)
      w.of[i] = r
    end
    w.table = w.buckets.open(memory)
  end
end

local function fail(format, ...)
  error(format:format(...), 0)
end

-- no_room(w, bucket) -> whether all places that it could have hold something
local function no_room(w, bucket)
  for _, set in ipairs { bucket.a, bucket.b } do
    for slot = 0, 7 do
      if w.table.sets[set].tat[slot] < now then
        return false
      end
    end
  end
  return true
end

-- The model: of each bucket the instant at which it is empty, in parts of 1/count of a microsecond.
local instants

local function backlog(rule, id)
  return max((instants[id] or 0) - now * rule.count, 0)
end

-- state(w, rule) -> the same from the table
local function state(w, rule)
  local place = w.buckets.find(w.table, rule.bucket)
  if place < 0 then
    return 0
  end
  local tat, frac = w.buckets.read(w.table, place)
  return tat * rule.count + frac
end

-- aim(w, list, ips, ids): the first of the list are by address, the others by buyer
local function aim(w, list, ips, client, buyer)
  w.names.address(w.ip, ("%04d"):format(client), 4)
  w.names.buyer(w.buyer, "buyer " .. buyer)
  w.rules.aim(list, 1, ips, w.ip)
  w.rules.aim(list, ips + 1, #list, w.buyer)
end

-- verdict(list, ids, from, to) -> what the model says of a request: the first rule that refuses it, and for how long; or nil
local function verdict(list, ids, from, to)
  for i = from, to do
    local rule = list[i]
    local b = backlog(rule, ids[i])
    if b > rule.tolerance and not rule.shadow then
      return i, (b - rule.tolerance) / rule.count
    end
  end
end

-- check_all(w): every bucket is in the table, once and as it should be, and no other one is
local function check_all(w)
  local n, live = 0, 0
  for i, rule in ipairs(w.of) do
    for client = 1, CLIENTS do
      for _, kind in ipairs { "i", "b" } do
        local id = kind .. i .. "/" .. client
        if instants[id] and instants[id] > now * rule.count then
          aim(w, { rule }, kind == "i" and 1 or 0, client, client)
          if state(w, rule) ~= instants[id] then
            fail("%s is %.0f and not %.0f", id, state(w, rule), instants[id])
          end
          n = n + (instants[id] >= (now + 1) * rule.count and 1 or 0)
        end
      end
    end
  end
  for i = 0, w.table.n - 1 do
    for slot = 0, 7 do
      live = live + (w.table.sets[i].tat[slot] > now and 1 or 0)
    end
  end
  if live ~= n then
    fail("%d buckets are in the table and %d should be", live, n)
  end
end

local counts

local function seen(what)
  counts[what] = (counts[what] or 0) + 1
end

-- admit(w, list, ids): one turn, held against the model
local function admit(w, list, ids)
  local n, over_by, wait_by = #list, verdict(list, ids, 1, #list)
  local before = {}
  for i, rule in ipairs(list) do
    before[i] = backlog(rule, ids[i])
  end
  local ok, at, detail = w.rules.admit(list, n)
  if over_by then
    seen "refused"
    if ok ~= false or at ~= over_by or detail ~= wait_by then
      fail("%s %s %s, where rule %d refuses for %s", tostring(ok), tostring(at), tostring(detail), over_by, wait_by)
    end
    return
  end
  if ok == nil then
    seen "no room"
    if detail ~= "no memory" or list[at].lenient or before[at] > 0 or not no_room(w, list[at].bucket) then
      fail("rule %d has no room: %s", at, detail)
    end
    return
  elseif not ok then
    fail("rule %d refuses for %s, and should not", at, detail)
  end
  seen("admitted by " .. n)
  for i, rule in ipairs(list) do
    local over = before[i] > rule.tolerance
    if w.rules.over[i] ~= over then
      fail("rule %d is over: %s", i, tostring(w.rules.over[i]))
    elseif over then
      seen "shadow"
    elseif not w.rules.backlog[i] then
      seen "passed over"
      if not rule.lenient or before[i] > 0 or not no_room(w, rule.bucket) then
        fail("rule %d was passed over", i)
      end
    else
      if w.rules.backlog[i] ~= before[i] + rule.period then
        fail("rule %d holds %.0f, and not %.0f", i, w.rules.backlog[i], before[i] + rule.period)
      end
      instants[ids[i]] = now * rule.count + before[i] + rule.period
    end
  end
end

-- die(w, list, ids): a turn that ends anywhere. A bucket is left as it was, or with the request in it, or wrong by less than a microsecond.
local function die(w, list, ids)
  local over_by, steps = verdict(list, ids, 1, #list), random(1, 500 * #list)
  local inside = false
  debug.sethook(function()
    if inside then
      debug.sethook()
      error("dead", 0)
    end
  end, "", steps)
  local done, why = pcall(function()
    inside = true
    w.rules.admit(list, #list)
    inside = false
  end)
  debug.sethook()
  if not done and why ~= "dead" then
    error(why, 0)
  end
  seen(done and "outlived" or "dead")
  for i, rule in ipairs(list) do
    local is, empty = state(w, rule), now * rule.count
    local was = max(instants[ids[i]] or 0, empty)
    local torn = was - was % rule.count + (was + rule.period) % rule.count
    if is > empty and is ~= was then
      if over_by or is ~= was + rule.period and is ~= torn then
        fail("a dead worker left rule %d at %.0f, which was %.0f", i, is, was)
      end
      seen(is == torn and "torn" or "charged")
    elseif is <= empty and was > empty and was - empty >= rule.count then
      fail("a dead worker emptied rule %d", i)
    end
    instants[ids[i]] = is
  end
end

local _M = {}

-- run(seed, turns, pages) -> how often what has happened; or an error
function _M.run(seed, turns, pages)
  math.randomseed(seed)
  begin(pages)
  instants, counts, now = {}, {}, 1e12
  for turn = 1, turns do
    if random(5) == 1 then
      now = now + (random(500) == 1 and random(2000) or random(0, 8))
    end
    local w = workers[random(WORKERS)]
    local client, buyer, left, list, ids = random(random(CLIENTS)), random(random(CLIENTS)), {}, {}, {}
    for i = 1, #RULES do
      left[i] = i
    end
    local n = random(random(#RULES))
    local ips = random(0, n)
    for i = 1, n do
      local which = table.remove(left, random(#left))
      list[i], ids[i] = w.of[which], (i <= ips and "i" or "b") .. which .. "/" .. (i <= ips and client or buyer)
    end
    aim(w, list, ips, client, buyer)
    local what = random(10)
    if what <= 3 then
      for _, part in ipairs { { 1, ips, w.ip }, { ips + 1, n, w.buyer } } do
        local at, wait = w.rules.refuses(list, part[1], part[2], part[3])
        local over_by, wait_by = verdict(list, ids, part[1], part[2])
        if at ~= over_by or wait ~= wait_by then
          fail("turn %d: refuses says %s %s, want %s %s", turn, tostring(at), tostring(wait), tostring(over_by), tostring(wait_by))
        end
        seen(at and "early" or "not early")
      end
    elseif what == 4 then
      local ok, at, wait = w.rules.peek(list, n)
      local over_by, wait_by = verdict(list, ids, 1, n)
      if ok ~= not over_by or at ~= over_by or wait ~= wait_by then
        fail("turn %d: peek says %s %s %s, want %s %s", turn, tostring(ok), tostring(at), tostring(wait), tostring(over_by), tostring(wait_by))
      end
    elseif what == 5 and w.mortal then
      die(w, list, ids)
    else
      admit(w, list, ids)
    end
    if turn % 500 == 0 then
      check_all(workers[random(WORKERS)])
    end
  end
  local out = {}
  for name, n in pairs(counts) do
    out[#out + 1] = name .. "=" .. n
  end
  table.sort(out)
  return table.concat(out, " ")
end

return _M
