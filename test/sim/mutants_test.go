package sim

// simulation is this package's own test, with seeds enough for every mutant that it has to find.
var simulation = proof{"./test/sim", "TestSimulation", []string{"-seeds", "400", "-shrink=false", "-queue", "list"}}

// mutant is one small edit of one file, and the test that must find it.
type mutant struct {
	name, file, old, new string
	by                   proof
}

// streamed is the same over the stream.
var streamed = proof{"./test/sim", "TestSimulation", []string{"-seeds", "400", "-shrink=false", "-queue", "stream"}}

// lateCalls is the simulation with calls that arrive late in every run.
func lateCalls(queue string) proof {
	return proof{"./test/sim", "TestSimulation", []string{"-seeds", "400", "-shrink=false", "-tardy", "-queue", queue}}
}

// transfers is the simulation of units that move between the segments of a sale.
var transfers = proof{"./test/spread", "TestTransfersOverModel", []string{"-seeds", "30000"}}

// transfersOverStores is the same over the scripts and the statements.
var transfersOverStores = proof{"./test/spread", "TestTransfersOverStores", []string{"-seeds", "100"}}

func queueTest(run string) proof     { return proof{"./backend/queue", "TestListOnMiniredis/" + run, nil} }
func storeTest(run string) proof     { return proof{"./backend/store", "Test" + run + "/sqlite", nil} }
func rebuildTest(run string) proof   { return proof{"./backend/recovery/rebuild", run, nil} }
func moveTest(run string) proof      { return proof{"./backend/recovery/move", run, nil} }
func admissionTest(run string) proof { return proof{"./backend/admission", run, nil} }

const (
	sqliteTables = "backend/store/migrations/sqlite/00001_schema.sql"
	notLeased    = "if not redis.call('ZSCORE', leases, id) then"
	held         = "if redis.call('HEXISTS', guard, 'rebuilding') == 1 then"
)

// fast are played with every run of this package's tests, so that the machinery below cannot rot.
var fast = []mutant{
	{"ack: no fence", "lua/redis/ack.lua", notLeased, "if false then", queueTest("lease/AckTwiceAnswersLost")},
	{
		"admit: the stock is not taken from",
		"lua/redis/admit.lua",
		"call('DECRBY', stock, n)",
		"call('DECRBY', stock, 0)",
		simulation,
	},
}

var mutants = []mutant{
	{
		"admit: sells when nothing is left",
		"lua/redis/admit.lua",
		"elseif left <= 0 then",
		"elseif left <= -1 then",
		simulation,
	},
	{
		"admit: the same order again takes a second unit",
		"lua/redis/include/slots.lua",
		"if order == id then\n      return 0",
		"if order == '' and order == id then\n      return 0",
		admissionTest("TestAdmitReplayedScriptTakesOneUnit/miniredis"),
	},
	{
		"admit: the dedup key is not looked at",
		"lua/redis/admit.lua",
		"match(seen[key] or '',",
		"match('',",
		simulation,
	},
	{
		"admit: the request of an order is not looked at",
		"lua/redis/admit.lua",
		"got = order_of(held[buyer], request)",
		"got = nil",
		simulation,
	},
	{
		"slots: the request of an order is not stored",
		"lua/redis/include/slots.lua",
		"request and id .. ':' .. request or id",
		"id",
		simulation,
	},
	{
		"slots: the request of a returned order is dropped",
		"lua/redis/include/slots.lua",
		"requests[#requests + 1] = ';' .. one",
		"",
		admissionTest("TestGroupDecidesLikeSingleRequests"),
	},
	{
		"rebuild: requests of corrected slots are dropped",
		"backend/recovery/rebuild/count.go",
		"string(h.slots.WithRequestsOf(found[buyer]))",
		"string(h.slots)",
		rebuildTest("TestReplayAfterARebuildGetsItsOrder"),
	},
	{
		"admit: one buyer buys twice within a group",
		"lua/redis/admit.lua",
		"held[buyer] = text",
		"",
		admissionTest("TestGroupDecidesLikeSingleRequests"),
	},
	{
		"admit: another connection waits for the replicas",
		"backend/admission/replicas.go",
		"conn.Wait(",
		"a.cfg.ReplicaClient(k.shard).Wait(",
		admissionTest("TestOnlyTheServerThatDecidedConfirms"),
	},
	{
		"admit: an order without a replica is confirmed",
		"backend/admission/replicas.go",
		"have < int64(a.cfg.Replicas)",
		"have < 0",
		admissionTest("TestOrderIsConfirmedWhenReplicasHaveIt"),
	},
	{
		"take: a replay is not recognised",
		"lua/redis/take.lua",
		"if redis.call('ZSCORE', leases, id) then\n    local again",
		"if false then\n    local again",
		simulation,
	},
	{
		"take: a batch that has ended is leased again",
		"lua/redis/take.lua",
		"if tonumber(batch_n) <= tonumber(last_n) then",
		"if redis.call('ZSCORE', leases, id) then",
		lateCalls("list"),
	},
	{
		"take: a batch that has ended is leased again, over the stream",
		"lua/redis/take.lua",
		"if tonumber(batch_n) <= tonumber(last_n) then",
		"if redis.call('ZSCORE', leases, id) then",
		lateCalls("stream"),
	},
	{
		"take: any consumer leases",
		"lua/redis/take.lua",
		"if not consumer or owner ~= consumer then",
		"if not consumer then",
		proof{"./backend/queue", "TestRemovedConsumerLeasesNothing", nil},
	},
	{
		"take: leases out of a shard that is rebuilt",
		"lua/redis/include/check_shard.lua",
		held,
		"if false then",
		rebuildTest("TestShardIsHeldDuringARebuild"),
	},
	{
		"extend: no fence",
		"lua/redis/extend_lease.lua",
		notLeased,
		"if false then",
		queueTest("reclaim/ZombieTouchesNothingOfTheNewOwner"),
	},
	{
		"release: no fence",
		"lua/redis/release.lua",
		notLeased,
		"if false then",
		queueTest("reclaim/ZombieTouchesNothingOfTheNewOwner"),
	},
	{"reclaim: no second look at the deadline", "lua/redis/reclaim.lua", "or tonumber(deadline) > now", "",
		proof{"./backend/queue", "TestReclaimSkipsALeaseExtendedMeanwhile", nil}},
	{"reclaim: a batch is dropped", "lua/redis/reclaim.lua", "requeue(ready, wake, token, messages)", "", simulation},
	{
		"stream: what a batch holds of it is dropped",
		"lua/redis/include/stream.lua",
		"messages[#messages + 1] = entry_text(entry)",
		"messages[1] = entry_text(entry)",
		streamed,
	},
	{
		"stream: entries stay when their batch is done",
		"lua/redis/include/stream.lua",
		"redis.call('XDEL', orders, unpack(entries))",
		"",
		streamed,
	},
	{
		"stream: a batch is leased without its deadline",
		"lua/redis/take.lua",
		"if #taken > 0 then\n  redis.call('ZADD'",
		"if n > 0 then\n  redis.call('ZADD'",
		streamed,
	},
	{
		"stream: the audit does not see it",
		"backend/admission/snapshot.go",
		"return ScanOrders(ctx, client, s.orders,",
		"return ScanOrders(ctx, client, s.orders+\"x\",",
		streamed,
	},
	{
		"stream: a rebuild drops it",
		"backend/recovery/rebuild/queue.go",
		"j.client, shard.Orders(), func",
		"j.client, shard.Orders()+\"x\", func",
		rebuildTest("TestRebuildOfAnIntactStreamKeepsItsQueue"),
	},
	{
		"reclaim: it does nothing",
		"backend/queue/reclaim.go",
		"for _, id := range ids {",
		"for _, id := range ids[:0] {",
		simulation,
	},
	{
		"watcher: never looks",
		"backend/queue/watcher.go",
		"n, err := w.Queue.Reclaim(ctx, watchLimit)",
		"n, err := 0, error(nil)",
		proof{"./backend/queue", "TestWatcherRoundEndsWhenNoLeaseIsExpired", nil},
	},
	{
		"give back: not once",
		"lua/redis/include/slots.lua",
		"if not found then",
		"if false then",
		admissionTest("TestReturnUnitsReturnsEachUnitOnce"),
	},
	{
		"dead letters: one is not listed by sale",
		"lua/redis/include/dead_letters.lua",
		"redis.call('ZADD', index, 0, index_line(key, text))",
		"",
		simulation,
	},
	{
		"dead letters: one that is gone stays listed",
		"lua/redis/include/dead_letters.lua",
		"  redis.call('HDEL', letters, key)\n  redis.call('ZREM', index, index_line(key, text))",
		"  redis.call('HDEL', letters, key)",
		simulation,
	},
	{
		"dead letters: those of an older version are not missed",
		"lua/redis/snapshot.lua",
		"if redis.call('ZCARD', index) ~= redis.call('HLEN', letters) then",
		"if false then",
		admissionTest("TestCountRepairsTheIndexOfDeadLetters/miniredis"),
	},
	{
		"dead letters: one of another sale is counted",
		"lua/redis/snapshot.lua",
		"return '[' .. sale .. unit, '(' .. sale .. string.sub(unit, 1, -2) .. '!'",
		"return '-', '+'",
		admissionTest("TestCountReadsOnlyTheLettersOfItsSale/miniredis"),
	},
	{
		"finish cancel: the unit goes back and the place does not",
		"lua/redis/dead_finish_cancel.lua",
		"if slots then",
		"if slots and false then",
		simulation,
	},
	{
		"finish cancel: an order that has no place gives a unit back",
		"lua/redis/dead_finish_cancel.lua",
		"loaded and slots and",
		"loaded and",
		proof{"./backend/queue", "TestCancelReturnsUnitAndSlotOnce", nil},
	},
	{
		"admin: a forged order reports a returned unit",
		"backend/admin/dead.go",
		"letter.Unbacked || !hasSlot[0]",
		"letter.Unbacked && hasSlot[0]",
		proof{"./backend/admin", "TestCancelOfAForgedOrderReturnsNoUnit", nil},
	},
	{
		"rebuild: a dead letter has a unit and no place",
		"backend/recovery/rebuild/sale_count.go",
		"slot = h.slots.Empty(o.Slot)",
		"slot = o.Slot",
		rebuildTest("TestDeadOrderMovesToAnotherSlot"),
	},
	{
		"worker: what fails within a batch is dropped",
		"backend/worker/write.go",
		"return append(first, second...), err",
		"return append(first[:0], second[:0]...), err",
		simulation,
	},
	{
		"worker: acknowledges what was not written",
		"backend/worker/write.go",
		"\tcase !isFault(err):\n\t\treturn nil, err\n",
		"\tcase !isFault(err):\n\t\treturn nil, nil\n",
		proof{"./backend/worker", "TestStopDoesNotWaitForAStoreThatIsDown", nil},
	},
	{
		"worker: does not keep its lease",
		"backend/worker/loop.go",
		"lost, err := l.queue.Extend(l.calls, id)",
		"lost, err := false, error(nil)",
		proof{"./backend/worker", "TestSlowWriteKeepsItsLease", nil},
	},
	{
		"SQL: an order written again counts again",
		"backend/store/sqlite.go",
		"hold_ms > 0)) ON CONFLICT (id) DO NOTHING",
		"hold_ms > 0)) ON CONFLICT (id) DO UPDATE SET serial = excluded.serial",
		storeTest("WriteTwiceCountsOnce"),
	},
	{
		"SQL: no unique slot",
		sqliteTables,
		"CREATE UNIQUE INDEX orders_slot",
		"CREATE INDEX orders_slot",
		storeTest("WriteRejectsSecondOrderForASlot"),
	},
	{
		"SQL: oversells",
		sqliteTables,
		"CHECK (0 <= sold AND sold <= stock)",
		"CHECK (0 <= sold)",
		storeTest("WriteRejectsMoreThanTheStock"),
	},
	{
		"SQL: a paid order is cancelled",
		"backend/store/cancel.go",
		"case sale.StatusPaid:",
		`case "never":`,
		storeTest("CancelOrderIsIdempotent"),
	},
	{
		"SQL: a cancelled order is paid",
		"backend/store/payments.go",
		"if o.Status == sale.StatusCancelled {",
		"if false {",
		storeTest("PayAgainstCancelHasOneWinner"),
	},
	{
		"SQL: no fence between generations",
		"backend/store/sqlite.go",
		"if current != from.number {",
		"if current != from.number && false {",
		storeTest("WriteRejectsOlderGeneration"),
	},
	{
		"rebuild: no fence",
		"lua/redis/rebuild_sale.lua",
		"-- include check_fence\n",
		"",
		rebuildTest("TestSuspendedRebuildIsFenced"),
	},
	{
		"rebuild: begins with the data of another deployment",
		"lua/redis/rebuild_begin.lua",
		"if owner ~= ARGV[3] then",
		"if false then",
		rebuildTest("TestFirstRebuildOfAnEmptyRedisOwnsIt"),
	},
	{
		"rebuild: takes the data of another deployment over with the same fence",
		"lua/redis/rebuild_begin.lua",
		"newest = newest + 1",
		"newest = newest",
		rebuildTest("TestTakeOverNeedsAHigherFence"),
	},
	{
		"rebuild: the deployment is not recorded when it begins",
		"lua/redis/rebuild_begin.lua",
		"'rebuilding', fence, 'deployment', deployment)",
		"'rebuilding', fence)",
		rebuildTest("TestInterruptedTakeOverIsFinishedByTheNewOwner|TestFirstRebuildOfAnEmptyRedisOwnsIt"),
	},
	{
		"rebuild: continues in the data of another deployment",
		"lua/redis/include/check_fence.lua",
		"if (mark[1] or '') .. ' ' .. (mark[2] or '0') ~= ARGV[1] then",
		"if (mark[1] or '') ~= string.match(ARGV[1], '^%d*') then",
		rebuildTest("TestRebuildOfAnotherDeploymentWithTheSameFence"),
	},
	{
		"rebuild: consumers of the former owner stay registered",
		"lua/redis/rebuild_begin.lua",
		"redis.call('UNLINK', consumers)",
		"",
		rebuildTest("TestFormerOwnerTakesNoOrder"),
	},
	{
		"rebuild: a takeover does not wait for the former owner",
		"backend/recovery/rebuild/job.go",
		"return awaitFormerOwner(ctx)",
		"return nil",
		rebuildTest("TestTakeOverAwaitsTheFormerOwner"),
	},
	{
		"queue: a consumer of another deployment registers",
		"lua/redis/register_consumer.lua",
		"if ARGV[3] ~= '0' and",
		"if false and",
		rebuildTest("TestFormerOwnerTakesNoOrder"),
	},
	{
		"load: a sale of another deployment is loaded",
		"lua/redis/load_sale.lua",
		"(not mark[2] or foreign)",
		"not mark[2]",
		rebuildTest("TestFormerOwnerTakesNoOrder"),
	},
	{
		"move: holds the data of another deployment",
		"lua/redis/move_hold.lua",
		"if (mark[4] or '0') ~= ARGV[3] then",
		"if false then",
		moveTest("TestSuspendedMoveTakesNothingBack"),
	},
	{
		"guard: the data of another deployment is trusted",
		"backend/recovery/guard/record.go",
		"case owner.Deployment != 0 && r.Deployment != owner.Deployment && r != record{}:",
		"case owner.Deployment != 0 && r.Deployment != owner.Deployment && r != record{} && false:",
		rebuildTest("TestOrdersAreNotRestoredInRedisOfAnotherDeployment|TestSuspendedRebuildTakesNothingBack"),
	},
	{
		"rebuild: numbered by an older database",
		"backend/recovery/rebuild/rebuild.go",
		"sql.NextFence(ctx, newest)",
		"sql.NextFence(ctx, 0)",
		rebuildTest("TestOneRebuildIsEnoughForARestoredDatabase"),
	},
	{
		"rebuild: messages that are sent twice are there twice",
		"lua/redis/rebuild_enqueue.lua",
		"elseif length > before then",
		"elseif false then",
		rebuildTest("TestRepeatedMessagesAreQueuedOnce"),
	},
	{
		"restore: units returned in the meantime are ignored",
		"lua/redis/restore_orders.lua",
		"elseif (def[3] or '') ~= ARGV[3] then",
		"elseif false then",
		rebuildTest("TestRestoreSkipsOrdersThatAreCancelledMeanwhile"),
	},
	{
		"finish cancel: no return is counted",
		"lua/redis/dead_finish_cancel.lua",
		"format('%d', returned + 1)",
		"format('%d', returned)",
		rebuildTest("TestRestoreSkipsOrdersThatAreCancelledMeanwhile"),
	},
	{
		"SQL: a dead letter of an older generation is settled",
		"backend/store/generations.go",
		"if current != wanted.number {",
		"if current != wanted.number && false {",
		storeTest("CancelDeadRejectsOlderGeneration"),
	},
	{
		"rebuild: no lock",
		"backend/redis/redisconn/lock.go",
		"if n != 1 {",
		"if n != 1 && false {",
		rebuildTest("TestOneRebuildAtATime"),
	},
	{
		"rebuild: any process renews the lock",
		"lua/redis/renew_lock.lua",
		"if owner and owner ~= ARGV[1] then",
		"if false then",
		proof{"./backend/redis/redisconn", "TestExpiredOwnerDoesNotTouchTheLockOfAnother", nil},
	},
	{
		"guard: a Redis that started again is trusted",
		"backend/recovery/guard/record.go",
		"case o.RunID != o.runID:",
		"case o.RunID != o.runID && false:",
		proof{"./backend/recovery/guard", "TestConnectionToUnverifiedDataIsBlocked", nil},
	},
	{
		"guard: a connection is made to any Redis",
		"backend/recovery/guard/guard.go",
		"if reason != \"\" {\n\t\tg.block(reason)\n\t\treturn ErrUnverified",
		"if reason != \"\" && false {\n\t\tg.block(reason)\n\t\treturn ErrUnverified",
		proof{"./backend/recovery/guard", "TestConnectionToUnverifiedDataIsBlocked", nil},
	},
	{
		"spread: units are set apart without a record",
		"test/spread/model.go",
		"s.Out = &spread.Transfer{From: wanted.From, To: wanted.To, Units: units, Version: s.Version}",
		"return &spread.Transfer{From: wanted.From, To: wanted.To, Units: units, Version: s.Version}, nil",
		transfers,
	},
	{
		"spread: a transfer is committed twice",
		"test/spread/model.go",
		"if m.ledger[t.From].Version == t.Version {",
		"if true {",
		transfers,
	},
	{
		"spread: the home is not checked",
		"test/spread/model.go",
		"if !s.Loaded || spread.Home(buyer, m.k) != segment {",
		"if !s.Loaded {",
		transfers,
	},
	{
		"spread: a rebuild does not claim its allocation",
		"test/spread/model.go",
		"m.ledger[segment].Version++\n\treturn m.ledger[segment], nil",
		"return m.ledger[segment], nil",
		transfers,
	},
	{
		"spread: sold out while units are in transfer",
		"backend/spread/soldout.go",
		"s[i].Version != a.Version",
		"a.Version < 0",
		transfers,
	},
	{
		"spread: sold out after a unit was returned",
		"backend/spread/soldout.go",
		"if first[i].Returns != second[i].Returns {",
		"if false {",
		proof{"./backend/spread", "TestSoldOutNeedsTwoEqualReadings", nil},
	},
	{
		"spread: unfinished moves are not completed",
		"backend/spread/mover.go",
		"\t\t\tfailures = append(failures, m.complete(ctx, of, *s.Out, readable))",
		"\t\t\t_ = readable",
		transfers,
	},
	{
		"spread: newer allocations are not applied",
		"backend/spread/mover.go",
		"s.Loaded && s.Version < allocations[i].Version",
		"s.Loaded && s.Version < 0",
		transfers,
	},
	{
		"segments: units are set apart without a record",
		"lua/redis/segment_set_apart.lua",
		"redis.call('HSET', sale, 'out', string.format('%d %d', units, to))",
		"",
		transfersOverStores,
	},
	{
		"segments: units are set apart twice",
		"lua/redis/segment_set_apart.lua",
		"if def[4] then\n  units, to",
		"if false then\n  units, to",
		transfersOverStores,
	},
	{
		"segments: a transfer is committed twice",
		"backend/store/segments.go",
		"if versions[t.From] == t.Version {",
		"if versions[t.From] != 0 {",
		transfersOverStores,
	},
	{
		"segments: a rebuild does not claim its allocation",
		"backend/store/segments.go",
		"\t\tif _, err := c.Exec(ctx, addUnits, saleID, segment, 0); err != nil {\n\t\t\treturn err\n\t\t}\n",
		"",
		transfersOverStores,
	},
	{
		"segments: a rebuild keeps the transfer",
		"lua/redis/include/write_sale.lua",
		"redis.call('HDEL', sale, 'segment', 'allocation', 'out')",
		"redis.call('HDEL', sale, 'segment', 'allocation')",
		transfersOverStores,
	},
	{
		"segments: the units of a reverted transfer stay away",
		"lua/redis/segment_apply.lua",
		"+ tonumber(string.match(def[5] or '', '^%d+') or 0)",
		"",
		transfersOverStores,
	},
	{
		"segments: an older allocation is applied",
		"lua/redis/segment_apply.lua",
		"if tonumber(ARGV[2]) <= tonumber(def[3]) then",
		"if false then",
		transfersOverStores,
	},
	{
		"admit: the home is not checked",
		"lua/redis/admit.lua",
		"if (def[7] or '') ~= home then",
		"if false then",
		transfersOverStores,
	},
	{
		"segments: serials of two segments are equal",
		"lua/redis/include/segment.lua",
		"or 0) * 1099511627776",
		"or 0) * 0",
		admissionTest("TestSerialsOfSegmentsDiffer/miniredis"),
	},
	{
		"segments: a restock changes the whole stock of a segment",
		"lua/redis/update_sale.lua",
		"local units = have[4] and have[2] or ARGV[6]",
		"local units = ARGV[6]",
		admissionTest("TestUpdateKeepsTheUnitsOfASegment/miniredis"),
	},
	{
		"rebuild: a segment gets the whole stock",
		"backend/recovery/rebuild/job.go",
		"c.def.Stock, c.left, c.allocation = a.Units, a.Units, a.Version",
		"c.allocation = a.Version",
		simulation,
	},
	{
		"load: a segment reads the orders of all segments",
		"backend/spread/part.go",
		"return p.Base() + 1, p.Base() + serialsPerSegment - 1",
		"return p.Base() * 0, math.MaxInt64",
		simulation,
	},
	{
		"returns: a unit returns to the first segment",
		"backend/admission/returns.go",
		"shard, id := s.ShardOf(home), home.SaleID",
		"shard, id := s.space.ShardOf(home.SaleID), home.SaleID",
		simulation,
	},
	{
		"audit: units on their way out are not counted",
		"backend/audit/audit.go",
		"r.InTransfer = count.Out + rows.Stock - count.Stock",
		"r.InTransfer = rows.Stock - count.Stock",
		proof{"./backend/audit", "TestSegmentBalancesAtEachStepOfATransfer", nil},
	},
	{
		"admit: a purchase that finds its segment empty is refused",
		"backend/admission/admit.go",
		"if d.Outcome != sale.SoldOut {",
		"if d.Outcome != sale.UnknownSale {",
		simulation,
	},
}
