-- Simulates turns of several workers over the plain store, step by step, and compares each bucket with a model. Each
-- worker has modules of its own. Every call of the shared dict is a step. Other workers may act between two steps of a
-- worker, and a worker may die or fail at any step. The dict has few entries and expires them by a clock that each
-- worker caches, as ngx_lua does. For tests only.

local max, min, random = math.max, math.min, math.random
local yield = coroutine.yield

local CLIENTS, WORKERS = 12, 4
local SECOND = 1000000 -- us
local LAG = 4 * SECOND -- how old a worker's cached clock may be, see MARGIN in limit/zone.lua

local RULES = {
  { name = "a", count = 1, period = 60, burst = 0 },
  { name = "b", count = 3, period = 100, burst = 2 },
  { name = "c", count = 2, period = 81001, burst = 3, lenient = true },
  { name = "d", count = 1, period = 300000, burst = 1, lenient = true, shadow = true },
  { name = "e", count = 1, period = 9 * SECOND, burst = 1 },
  { name = "f", count = 3, period = 5 * SECOND, burst = 0, lenient = true },
}

local now = 0 -- us
local acting, steps -- the worker whose step it is, and the number of the step
local counts -- how often each event has happened

local function seen(what)
  counts[what] = (counts[what] or 0) + 1
end

local function fail(format, ...)
  error("model: " .. format:format(...), 0)
end

-- The shared dict. An entry takes one of `room` places until it is removed, also after it has expired.
local dict, entries, room, used, stamp = {}, nil, nil, nil, nil

-- step() -> the worker's clock. Other workers may act before it returns.
local function step()
  local w = acting
  if coroutine.running() == w.turn then
    yield()
  end
  return w.clock
end

local function remove(key)
  if entries[key] then
    entries[key], used = nil, used - 1
  end
end

local function is_expired(e, clock)
  return e.expires and e.expires <= clock
end

-- expire(clock): every write removes up to two of the entries that were used longest ago, while they have expired
local function expire(clock)
  for _ = 1, 2 do
    local oldest
    for key, e in pairs(entries) do
      if not oldest or e.stamp < entries[oldest].stamp then
        oldest = key
      end
    end
    if not oldest or not is_expired(entries[oldest], clock) then
      return
    end
    remove(oldest)
    seen "expired"
  end
end

local function store(clock, key, value, ttl, flags)
  if not entries[key] then
    if used >= room then
      return false, "no memory"
    end
    used = used + 1
  end
  stamp = stamp + 1
  entries[key] = { value = value, flags = flags or 0, stamp = stamp, expires = ttl and clock + ttl * SECOND }
  return true
end

function dict.get(_, key)
  local clock, e = step(), entries[key]
  if not e or is_expired(e, clock) then
    return nil
  end
  stamp = stamp + 1
  e.stamp = stamp
  return e.value, e.flags ~= 0 and e.flags or nil
end

function dict.safe_set(_, key, value, ttl, flags)
  local clock = step()
  expire(clock)
  return store(clock, key, value, ttl, flags)
end

function dict.safe_add(_, key, value, ttl, flags)
  local clock = step()
  expire(clock)
  if entries[key] and not is_expired(entries[key], clock) then
    return false, "exists"
  end
  return store(clock, key, value, ttl, flags)
end

function dict.set(_, key, value, ttl, flags)
  local clock = step()
  expire(clock)
  local ok = store(clock, key, value, ttl, flags)
  if not ok then
    fail("%s evicts an entry that is in use", key)
  end
  return true
end

function dict.delete(_, key)
  step()
  remove(key)
end

function dict.flush_expired()
  local clock, old = step(), {}
  for key, e in pairs(entries) do
    old[#old + 1] = is_expired(e, clock) and key or nil
  end
  for _, key in ipairs(old) do
    remove(key)
  end
  seen "swept"
end

-- Processes, by their ids: when each began, or false when it has ended.
local processes

-- The functions of libc that limit/lock.lua uses, and /proc.
local libc = {
  cdef = function() end,
  errno = function() return 3 end,
  C = {
    sluice_kill = function(pid)
      if random(3) == 1 then -- others may take the lock over before this worker does
        acting.resumes = steps + random(2000)
      end
      return processes[pid] == nil and -1 or 0
    end,
    sluice_usleep = function(us)
      now = now + random(us, 500 * us)
      step()
    end,
  },
}

local function open(path)
  local pid = tonumber(path:match("^/proc/(%d+)/stat$"))
  local began = processes[pid]
  if began == nil then
    return nil
  end
  local state = began and "S" or "Z"
  return {
    read = function() return ("%d (nginx) %s%s %d 0"):format(pid, state, (" 1"):rep(18), began or 1) end,
    close = function() end,
  }
end

local chunks = {}
for _, name in ipairs { "each", "limit.gcra", "limit.lock", "limit.rules", "limit.store", "limit.zone" } do
  name = "sluice." .. name
  chunks[name] = assert(loadfile(assert(package.searchpath(name, package.path))))
end

local next_pid

local function inside(w)
  for _, other in pairs(processes.workers) do
    if other ~= w and other.inside then
      fail("two workers are in a turn")
    end
  end
  w.inside = true
end

-- new_worker(is_forked) -> a process with modules of its own
local function new_worker(is_forked)
  local pid = next_pid
  next_pid = next_pid + 1
  processes[pid] = pid * 7
  local w = { pid = pid, clock = 0, resumes = 0, turns = 0 }
  local loaded = {
    ["sluice.count"] = { add = function() end },
    ["sluice.clock"] = { now = function() return now end },
    ffi = libc,
  }
  local env, load
  function load(name)
    if not loaded[name] then
      loaded[name] = setfenv(assert(chunks[name], name), env)()
    end
    return loaded[name]
  end
  loaded["sluice.accel"] = { select = function(_, plain) return load(plain) end }
  env = setmetatable({
    require = load, ngx = { worker = { pid = function() return pid end } }, io = { open = open },
  }, { __index = _G })
  local plain = load "sluice.limit.store"
  local enter, leave = plain.enter, plain.leave
  function plain.enter()
    local at, err = enter()
    if at then
      inside(w)
      w.now = at
    end
    return at, err
  end
  function plain.leave()
    leave()
    w.inside, w.turns = nil, w.turns + 1
  end
  acting, w.rules = w, load "sluice.limit.rules"
  local safe_add = dict.safe_add
  dict.safe_add = is_forked and function() end or safe_add -- only the master initializes the dict
  w.rules.init(dict)
  dict.safe_add = safe_add
  w.of = {}
  for i, rule in ipairs(RULES) do
    local r = { prefix = rule.name .. ":", failed = "error", tolerance = rule.burst * rule.period }
    for field, value in pairs(rule) do
      r[field] = value
    end
    w.rules.prepare(r)
    w.of[i] = r
  end
  return w
end

-- The model: for each bucket, the instant at which it is empty, in units of 1/count microseconds.
local instants

-- For each bucket: the number of admitted requests, and the minimum of admitted * period - now * count before an
-- admission.
local admitted, least

local function backlog(rule, id, at)
  return max((instants[id] or 0) - at * rule.count, 0)
end

-- over(list, ids, at) -> the first rule that refuses, and for how long; or nil
local function over(list, ids, at)
  for i, rule in ipairs(list) do
    local b = backlog(rule, ids[i], at)
    if b > rule.tolerance and not rule.shadow then
      return i, (b - rule.tolerance) / rule.count
    end
  end
end

-- charge(rule, id, at, before): the bucket has taken a request
local function charge(rule, id, at, before)
  instants[id] = at * rule.count + before + rule.period
  local n = admitted[id] or 0
  local level = n * rule.period - at * rule.count
  least[id] = min(least[id] or level, level)
  -- More than rate * L + burst + 1 in an interval of length L.
  if level - least[id] > rule.tolerance then
    fail("%s admits more than its bound", id)
  end
  admitted[id] = n + 1
end

-- in_dict(rule, id) -> the same instant from the dict, 0 when it has none
local function in_dict(rule, id)
  local e = entries[id]
  return e and e.value * rule.count + e.flags or 0
end

local function check_all()
  for id, instant in pairs(instants) do
    local rule
    for _, r in ipairs(RULES) do
      rule = id:sub(1, 2) == r.name .. ":" and r or rule
    end
    local is = in_dict(rule, id)
    if is ~= instant and max(is, instant) > now * rule.count then
      fail("%s is %.0f and not %.0f", id, is, instant)
    end
  end
end

-- admit(w, list, ids): one turn
local function admit(w, list, ids)
  w.now = nil
  local ok, at, detail = w.rules.admit(list, #list)
  if not w.now then
    seen "no lock"
    for i, rule in ipairs(list) do
      local judged = ok or i <= at
      if judged and w.rules.backlog[i] or ok and not rule.lenient or i == at and rule.lenient then
        fail("without the lock: %s", tostring(ok))
      end
    end
    return
  end
  local by, wait = over(list, ids, w.now)
  if by or ok == false then
    seen "refused"
    if ok ~= false or at ~= by or detail ~= wait then
      fail("%s %s %s, where rule %s refuses for %s", tostring(ok), tostring(at), tostring(detail), tostring(by),
        tostring(wait))
    end
    return
  elseif ok == nil then
    seen "no room"
    if detail ~= "no memory" or list[at].lenient or backlog(list[at], ids[at], w.now) > 0 then
      fail("rule %d has no room: %s", at, detail)
    end
    return
  end
  seen("admitted by " .. #list)
  for i, rule in ipairs(list) do
    local before = backlog(rule, ids[i], w.now)
    if w.rules.over[i] ~= (before > rule.tolerance) then
      fail("rule %d is over: %s", i, tostring(w.rules.over[i]))
    elseif w.rules.over[i] then
      seen "shadow"
    elseif w.rules.backlog[i] then
      charge(rule, ids[i], w.now, before)
    else
      seen "passed over"
      if not rule.lenient or before > 0 then
        fail("rule %d was passed over", i)
      end
    end
  end
end

-- early(w, list, ids, client): the check without the lock. Other workers may fill buckets meanwhile, and none empties
-- one.
local function early(w, list, ids, client)
  local at, ok, refuses = now
  if random(2) == 1 then
    refuses = w.rules.refuses(list, 1, #list, client)
    ok = not refuses
  else
    ok, refuses = w.rules.peek(list, #list)
  end
  if not ok then
    seen "early"
    local rule, id = list[refuses], ids[refuses]
    local filled = in_dict(rule, id) - at * rule.count -- maybe by a turn that has not ended
    if max(filled, backlog(rule, id, at)) <= rule.tolerance then
      fail("rule %d refuses early", refuses)
    end
  end
end

-- begin(w): the next request of this worker
local function begin(w)
  w.clock = max(w.clock, now - (random(4) == 1 and random(0, LAG) or 0))
  local client, left, list, ids = "client " .. random(random(CLIENTS)), {}, {}, {}
  for i = 1, #RULES do
    left[i] = i
  end
  for i = 1, random(random(#RULES)) do
    local rule = w.of[table.remove(left, random(#left))]
    list[i], ids[i] = rule, rule.prefix .. client
  end
  w.list, w.ids = list, ids
  local what = random(6) == 1 and early or admit
  w.turn = coroutine.create(function()
    w.rules.aim(list, 1, #list, client)
    what(w, list, ids, client)
  end)
end

-- stop(w): its turn ends here. Each bucket is as it was, or has taken the request.
local function stop(w)
  if w.inside then
    local by = over(w.list, w.ids, w.now)
    for i, rule in ipairs(w.list) do
      local id = w.ids[i]
      local is, before = in_dict(rule, id), backlog(rule, id, w.now)
      if is ~= (instants[id] or 0) and is > w.now * rule.count then
        if by or before > rule.tolerance or is ~= w.now * rule.count + before + rule.period then
          fail("a turn that ended left %s at %.0f, %.0f before", id, is, instants[id] or 0)
        end
        seen "charged"
        charge(rule, id, w.now, before)
      end
    end
  end
  w.turn, w.inside = nil, nil
end

-- resume(w): one step of its turn
local function resume(w)
  acting, w.clock = w, w.inside and w.clock or max(w.clock, now - LAG)
  local ok, err = coroutine.resume(w.turn)
  if not ok then
    error(err, 0)
  elseif coroutine.status(w.turn) == "dead" then
    w.turn = nil
  end
end

-- rest(workers): all turns end, and then nothing happens for some time: a turn is shorter than the margin
local function rest(workers)
  local busy
  repeat
    busy = false
    for _, w in ipairs(workers) do
      if w.turn then
        busy = true
        resume(w)
      end
    end
  until not busy
  now = now + random(random(3) == 1 and 30 * SECOND or SECOND)
end

-- next_to_act(workers) -> the worker of this step. A worker may stop for many steps.
local function next_to_act(workers)
  local w
  repeat
    w = workers[random(WORKERS)]
    for _, other in ipairs(workers) do
      if other.inside and random(3) > 1 then
        w = other -- all wait for it
      end
    end
  until steps >= w.resumes or random(100) == 1
  if random(100) == 1 then
    w.resumes = steps + random(random(2000))
  end
  return w
end

local _M = {}

-- act(workers, mortal): one step of one worker. mortal: it may die, or an error may end its turn
local function act(workers, mortal)
  local w = next_to_act(workers)
  acting = w
  if not w.turn then
    begin(w)
    if random(50) == 1 then
      w.rules.repair()
    end
  end
  resume(w)
  if not w.turn then
    return
  elseif mortal and random(400) == 1 then -- an error ends the turn
    seen(w.inside and "failed in a turn" or "failed")
    stop(w)
  elseif mortal and random(400) == 1 then
    seen(w.inside and "killed in a turn" or "killed")
    stop(w)
    processes[w.pid] = random(2) == 1 and false or nil -- a zombie, or gone
    for i = 1, WORKERS do
      workers[i] = workers[i] == w and new_worker(true) or workers[i]
    end
  end
end

-- check_lock(workers): after all deaths, every worker gets the lock again. A dict that is full has room for the entries
-- of the lock when buckets have expired.
local function check_lock(workers)
  local before = {}
  for i, w in ipairs(workers) do
    before[i] = w.turns
  end
  for _ = 1, 20000 do
    steps, now = steps + 1, now + random(SECOND / 50)
    act(workers, false)
    local all = true
    for i, w in ipairs(workers) do
      all = all and w.turns > before[i]
    end
    if all then
      return
    end
  end
  fail("the lock is lost")
end

-- run(seed, n, places) -> how often each event has happened in n steps; or an error. places: of entries in the dict
function _M.run(seed, n, places)
  math.randomseed(seed)
  entries, used, room, stamp = {}, 0, places, 0
  instants, admitted, least, counts, now, next_pid = {}, {}, {}, {}, 1e12, 100
  local workers = {}
  processes = { workers = workers }
  for i = 1, WORKERS do
    workers[i] = new_worker(i > 1)
  end
  for i = 1, n do
    steps = i
    if random(8) == 1 then
      now = now + random(0, 20)
    end
    if random(300) == 1 then
      rest(workers)
    end
    act(workers, true)
    local busy = false
    for _, w in ipairs(workers) do
      busy = busy or w.inside
    end
    if i % 50 == 0 and not busy then
      check_all()
    end
  end
  check_lock(workers)
  local out = {}
  for name, times in pairs(counts) do
    out[#out + 1] = name .. "=" .. times
  end
  table.sort(out)
  return table.concat(out, ", ")
end

return _M
