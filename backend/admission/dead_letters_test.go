package admission

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// addLetters adds letters without index lines.
func addLetters(t *testing.T, c redisconn.Client, saleID, fields string, from, to int) {
	t.Helper()
	ctx := context.Background()
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id := from; id <= to; id++ {
			p.ZAdd(ctx, shard.Dead().Times(), redis.Z{Score: float64(id), Member: strconv.Itoa(id)})
			message := fmt.Sprintf("%d %s 1 %d buyer %d", id, saleID, id, id)
			letter := fmt.Sprintf(`{"state":"dead","message":%q%s}`, message, fields)
			p.HSet(ctx, shard.Dead().Letters(), strconv.Itoa(id), letter)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (h *shop) wantDead(t *testing.T, saleID string, backed, unbacked int) {
	t.Helper()
	count, err := h.CountUnits(context.Background(), spread.Part{SaleID: saleID})
	if err != nil {
		t.Fatal(err)
	}
	if len(count.Dead) != backed || count.Unbacked != int64(unbacked) {
		t.Fatalf(
			"%s: %d dead letters with a unit and %d without, want %d and %d", saleID, len(count.Dead), count.Unbacked, backed,
			unbacked,
		)
	}
	for _, m := range count.Dead {
		if m.SaleID != saleID || m.Buyer != "buyer "+m.ID.String() || m.Slot != 1 || m.Serial != int64(m.ID) ||
			m.Status != sale.StatusDead {
			t.Fatalf("message %+v", m)
		}
	}
}

func TestCountRepairsTheIndexOfDeadLetters(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		addLetters(t, c, "s", "", 1, 3)
		addLetters(t, c, "s", `,"unit":"none"`, 4, 5)
		addLetters(t, c, "s.2", "", 6, 6+2*reindexChunk)
		c.HSet(ctx, shard.Dead().Letters(), "raw:ab", `{"state":"dead","raw":"AAA="}`, "12 x", "{broken")
		h.wantDead(t, "s", 3, 2)
		h.wantDead(t, "s.2", 2*reindexChunk+1, 0)

		// Letters are added and deleted without their lines.
		addLetters(t, c, "s", "", 9_001, 9_001)
		h.wantDead(t, "s", 4, 2)
		c.HDel(ctx, shard.Dead().Letters(), "9001", "2", "raw:ab")
		h.wantDead(t, "s", 2, 2)

		// A count does not detect equal numbers of additions and deletions; ReindexDead repairs the index.
		addLetters(t, c, "s", `,"unit":"none"`, 3, 3)
		addLetters(t, c, "s", "", 9_002, 9_002)
		c.HDel(ctx, shard.Dead().Letters(), "1")
		for _, want := range []int64{4, 0} {
			if n, err := h.ReindexDead(ctx, spread.Part{SaleID: "s"}); err != nil || n != want {
				t.Errorf("%d lines changed, %v; want %d", n, err, want)
			}
		}
		h.wantDead(t, "s", 1, 3)
	})
}

// The repair may take longer than the timeout of a count, because there may be many dead letters.
func TestRepairOfTheIndexHasNoTimeout(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		addLetters(t, c, "s", "", 1, 3)
		var repairs, bounded int
		addHook(c, testenv.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 3 && args[3] == shard.Dead().Letters() {
				repairs++
				if _, ok := ctx.Deadline(); ok {
					bounded++
				}
			}
			return next(ctx, cmd)
		}))
		if _, err := h.CountUnits(ctx, spread.Part{SaleID: "s"}); err != nil {
			t.Fatal(err)
		}
		if repairs == 0 || bounded > 0 {
			t.Errorf("%d of %d runs of the script have a deadline", bounded, repairs)
		}
	})
}

// Each of the repairs may be the one that completes the index, also the last.
func TestCountFollowsTheLastRepairOfTheIndex(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		addLetters(t, c, "s", "", 1, 1)
		repairs := 0
		addHook(c, testenv.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			args := cmd.Args()
			isLast := len(args) > 5 && args[3] == shard.Dead().Letters() && args[5] == "lines"
			if err != nil || !isLast { // of the runs of a repair
				return err
			}
			if repairs++; repairs < maxReindexes {
				addLetters(t, c, "s", "", 1+repairs, 1+repairs)
			}
			return nil
		}))
		if _, err := h.CountUnits(ctx, spread.Part{SaleID: "s"}); err != nil || repairs != maxReindexes {
			t.Errorf("after %d repairs: %v", repairs, err)
		}
	})
}

// A copy of a letter under another key holds no second unit.
func TestCountCountsAnOrderWithTwoLettersOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		addLetters(t, c, "s", "", 1, 3)
		c.HSet(context.Background(), shard.Dead().Letters(), "copy", `{"state":"dead","message":"2 s 1 2 buyer 2"}`)
		h.wantDead(t, "s", 3, 0)
	})
}

// The copies take as much memory as the queue, so they are deleted and not left to expire.
func TestCountDeletesItsCopies(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		h.put(t, onSale("s", 9, 1))
		h.buy(t, "s", "ann", "k")
		addLetters(t, c, "s", "", 1, 3)
		c.ZAdd(ctx, shard.Delayed(), redis.Z{Member: "5 s 1 5 ben"})
		c.RPush(ctx, shard.Batch("b"), "6 s 1 6 cat")
		c.ZAdd(ctx, shard.Leases(), redis.Z{Score: 1, Member: "b"})
		c.XAdd(ctx, &redis.XAddArgs{Stream: shard.Orders(), Values: []string{"m", "7 s 1 7 dan"}})
		c.HSet(ctx, shard.Returns("s"), "8", "1")
		count, err := h.CountUnits(ctx, spread.Part{SaleID: "s"})
		if err != nil || len(count.Ready) != 2 || len(count.Delayed) != 1 || len(count.Leased) != 1 || len(count.Dead) != 3 ||
			len(count.Returned) != 1 {
			t.Fatalf("count %+v, %v", count, err)
		}
		if left := keysLike(ctx, c, "*:copy:*"); len(left) != 0 {
			t.Errorf("copies %q remain", left)
		}
	})
}

// countBytes counts the bytes of commands and replies.
type countBytes struct{ bytes int }

func (*countBytes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *countBytes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			w.bytes += len(cmd.String())
		}
		return err
	}
}

func (w *countBytes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		w.bytes += len(cmd.String())
		return err
	}
}

// The cost of a count does not depend on the dead letters of other sales.
func TestCountReadsOnlyTheLettersOfItsSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		addLetters(t, c, "s", "", 1, 3)
		for i, other := range []string{"r", "s-", "s.", "s0", "sa", "t"} {
			addLetters(t, c, other, "", 1_000*(i+1), 1_000*(i+1)+99)
		}
		h.wantDead(t, "s", 3, 0)
		w := &countBytes{}
		addHook(c, w)
		h.wantDead(t, "s", 3, 0)
		if w.bytes > 10_000 { // the letters of the other sales have 40,000
			t.Errorf("the count transferred %d bytes", w.bytes)
		}
	})
}

func TestCountOfSeveralSalesHasTheLettersOfEach(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		addLetters(t, c, "a", "", 1, readChunk+1)
		addLetters(t, c, "c", `,"unit":"none"`, 5_001, 5_002)
		got, err := h.CountShardUnits(context.Background(), keyspace.Shard(0), []string{"c", "b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got["a"].Dead) != readChunk+1 || len(got["b"].Dead) != 0 || got["b"].Unbacked != 0 || got["c"].Unbacked != 2 ||
			len(got["c"].Dead) != 0 {
			t.Errorf(
				"sale a has %d letters, b %d, c %d without a unit", len(got["a"].Dead), len(got["b"].Dead), got["c"].Unbacked,
			)
		}
	})
}

// The client repeats the script after a lost reply. The second run replaces the copies of the first.
func TestSnapshotCanRunTwice(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		addLetters(t, c, "s", "", 1, 3)
		h.wantDead(t, "s", 3, 0)
		shot := newSnapshot(shard, 0, 1)
		for _, want := range []string{"3", "3", "2"} {
			if want == "2" {
				c.HDel(ctx, shard.Dead().Letters(), "1")
				if _, err := h.ReindexDead(ctx, spread.Part{SaleID: "s"}); err != nil {
					t.Fatal(err)
				}
			}
			keys := shot.keys(nil, []string{"s"})
			f, err := redisscript.Run(ctx, c, "snapshot", keys, shard.Batch(""), 60_000, 0, "s").StringSlice()
			if copied := c.ZCard(ctx, shot.lines[0]).Val(); err != nil || f[0] != want || strconv.FormatInt(copied, 10) != want {
				t.Fatalf("result %q, %v, %d lines copied; want %s", f, err, copied, want)
			}
			if left := c.PTTL(ctx, shot.lines[0]).Val(); left <= 0 || left > time.Minute {
				t.Fatalf("the copy of the lines expires in %s", left)
			}
		}
	})
}

// The second run must not leave copies of messages that have moved, or they would be counted twice.
func TestSnapshotThatRunsTwiceCopiesTheLaterInstant(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		shot := newSnapshot(shard, 1, 1)
		sources := []string{shard.Ready(), shard.Delayed(), shard.Orders(), shard.Batch("b"), shard.Returns("s")}
		copies := []string{shot.ready, shot.delayed, shot.orders, shot.batches[0], shot.returns[0]}
		fill := func(ids ...string) {
			for _, id := range ids {
				c.RPush(ctx, sources[0], id+" s 1 1 ann")
				c.ZAdd(ctx, sources[1], redis.Z{Member: id + " s 1 1 ben"})
				c.XAdd(ctx, &redis.XAddArgs{Stream: sources[2], Values: []string{"m", id + " s 1 1 cat"}})
				c.RPush(ctx, sources[3], id+" s 1 1 dan")
				c.HSet(ctx, sources[4], id, id)
			}
		}
		c.ZAdd(ctx, shard.Leases(), redis.Z{Score: 1, Member: "b"})
		for _, step := range []struct {
			name string
			do   func()
			want int64
		}{
			{"first run", func() { fill("1", "2") }, 2},
			{"unchanged", func() {}, 2},
			{"fewer messages", func() { c.Del(ctx, sources...); fill("3") }, 1},
			{"empty", func() { c.Del(ctx, sources...) }, 0},
		} {
			step.do()
			keys := shot.keys([]string{"b"}, []string{"s"})
			if err := redisscript.Run(ctx, c, "snapshot", keys, shard.Batch(""), 60_000, 1, "s").Err(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			for i, n := range []int64{
				c.LLen(ctx, copies[0]).Val(), c.ZCard(ctx, copies[1]).Val(), c.XLen(ctx, copies[2]).Val(),
				c.LLen(ctx, copies[3]).Val(), c.HLen(ctx, copies[4]).Val(),
			} {
				if n != step.want {
					t.Errorf("%s: the copy of %s has %d entries, want %d", step.name, sources[i], n, step.want)
				}
				if left := c.PTTL(ctx, copies[i]).Val(); n > 0 && (left <= 0 || left > time.Minute) {
					t.Errorf("%s: the copy of %s expires in %s", step.name, sources[i], left)
				}
			}
		}
	})
}
