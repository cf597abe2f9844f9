package admission

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// dies writes letters as a version does that keeps no list by sale.
func dies(t *testing.T, c *redis.Client, saleID, more string, from, to int) {
	t.Helper()
	ctx := context.Background()
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for id := from; id <= to; id++ {
			p.ZAdd(ctx, shard.Dead(), redis.Z{Score: float64(id), Member: strconv.Itoa(id)})
			p.HSet(ctx, shard.DeadLetters(), strconv.Itoa(id), fmt.Sprintf(`{"state":"dead","message":"%d %s 1 %d buyer %d"%s}`, id, saleID, id, id, more))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (h *house) wantDead(t *testing.T, saleID string, backed, unbacked int) {
	t.Helper()
	census, err := h.CountUnits(context.Background(), saleID)
	if err != nil {
		t.Fatal(err)
	}
	if len(census.Dead) != backed || census.Unbacked != int64(unbacked) {
		t.Fatalf("%s: %d dead with a unit and %d without, want %d and %d", saleID, len(census.Dead), census.Unbacked, backed, unbacked)
	}
	for _, m := range census.Dead {
		if m.SaleID != saleID || m.Buyer != "buyer "+m.ID.String() || m.Slot != 1 || m.Serial != int64(m.ID) || m.Status != sale.StatusDead {
			t.Fatalf("the census has %+v", m)
		}
	}
}

func TestCensusCountsLettersOfAnOlderVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		dies(t, c, "s", "", 1, 3)
		dies(t, c, "s", `,"unit":"none"`, 4, 5)
		dies(t, c, "s.2", "", 6, 6+2*reindexChunk)
		c.HSet(ctx, shard.DeadLetters(), "raw:ab", `{"state":"dead","raw":"AAA="}`, "12 x", "{broken")
		h.wantDead(t, "s", 3, 2)
		h.wantDead(t, "s.2", 2*reindexChunk+1, 0)

		// It is still at work: one more is dead, one is retried, and one has lost its unit to others.
		dies(t, c, "s", "", 9_001, 9_001)
		h.wantDead(t, "s", 4, 2)
		c.HDel(ctx, shard.DeadLetters(), "9001", "2", "raw:ab")
		h.wantDead(t, "s", 2, 2)

		// As many come as go, and the census cannot know; the list can be made right all the same.
		dies(t, c, "s", `,"unit":"none"`, 3, 3)
		dies(t, c, "s", "", 9_002, 9_002)
		c.HDel(ctx, shard.DeadLetters(), "1")
		for _, want := range []int64{4, 0} {
			if n, err := h.ReindexDead(ctx, "s"); err != nil || n != want {
				t.Errorf("%d lines were changed, %v; want %d", n, err, want)
			}
		}
		h.wantDead(t, "s", 1, 3)
	})
}

// A letter that somebody has copied by hand holds no second unit.
func TestCensusCountsAnOrderOnceHoweverManyLettersItHas(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		dies(t, c, "s", "", 1, 3)
		c.HSet(context.Background(), shard.DeadLetters(), "copy", `{"state":"dead","message":"2 s 1 2 buyer 2"}`)
		h.wantDead(t, "s", 3, 0)
	})
}

// A copy of a queue takes as much memory as the queue: what was read is removed, and does not wait until it expires.
func TestCensusLeavesNoCopies(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		h.put(t, onSale("s", 9, 1))
		h.buy(t, "s", "ann", "k")
		dies(t, c, "s", "", 1, 3)
		c.ZAdd(ctx, shard.Delayed(), redis.Z{Member: "5 s 1 5 ben"})
		c.RPush(ctx, shard.Batch("b"), "6 s 1 6 cat")
		c.ZAdd(ctx, shard.Leases(), redis.Z{Score: 1, Member: "b"})
		c.XAdd(ctx, &redis.XAddArgs{Stream: shard.Orders(), Values: []string{"m", "7 s 1 7 dan"}})
		c.HSet(ctx, shard.Returns("s"), "8", "1")
		census, err := h.CountUnits(ctx, "s")
		if err != nil || len(census.Ready) != 2 || len(census.Delayed) != 1 || len(census.Leased) != 1 || len(census.Dead) != 3 || len(census.Returned) != 1 {
			t.Fatalf("%+v, %v", census, err)
		}
		if left := c.Keys(ctx, "*:copy:*").Val(); len(left) != 0 {
			t.Errorf("%q are left", left)
		}
	})
}

// weigh adds up what Redis was asked and what it has answered, as text.
type weigh struct{ bytes int }

func (*weigh) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *weigh) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			w.bytes += len(cmd.String())
		}
		return err
	}
}

func (w *weigh) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		w.bytes += len(cmd.String())
		return err
	}
}

// A sale with three dead letters is counted at the cost of three, whatever else is dead in its shard.
func TestCensusReadsTheLettersOfItsSaleAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		dies(t, c, "s", "", 1, 3)
		for i, other := range []string{"r", "s-", "s.", "s0", "sa", "t"} {
			dies(t, c, other, "", 1_000*(i+1), 1_000*(i+1)+99)
		}
		h.wantDead(t, "s", 3, 0)
		w := &weigh{}
		c.AddHook(w)
		h.wantDead(t, "s", 3, 0)
		if w.bytes > 10_000 { // the letters of the others are 40,000
			t.Errorf("%d bytes went to and fro", w.bytes)
		}
	})
}

// A census of many sales reads the letters of each.
func TestCensusOfManySalesHasTheLettersOfEach(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		dies(t, c, "a", "", 1, readChunk+1)
		dies(t, c, "c", `,"unit":"none"`, 5_001, 5_002)
		got, err := h.CountShardUnits(context.Background(), keyspace.Shard(0), []string{"c", "b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got["a"].Dead) != readChunk+1 || len(got["b"].Dead) != 0 || got["b"].Unbacked != 0 || got["c"].Unbacked != 2 || len(got["c"].Dead) != 0 {
			t.Errorf("a %d, b %d, c %d without a unit", len(got["a"].Dead), len(got["b"].Dead), got["c"].Unbacked)
		}
	})
}

// An answer can be lost, and the client asks again: the second run answers what is there, and leaves nothing of the
// first one behind.
func TestSnapshotMayRunTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		dies(t, c, "s", "", 1, 3)
		h.wantDead(t, "s", 3, 0)
		shot := newSnapshot(shard, 0, 1)
		for _, want := range []string{"3", "3", "2"} {
			if want == "2" {
				c.HDel(ctx, shard.DeadLetters(), "1")
				if _, err := h.ReindexDead(ctx, "s"); err != nil {
					t.Fatal(err)
				}
			}
			f, err := h.Stock.snapshot.Run(ctx, c, shot.keys(nil, []string{"s"}), shard.BatchPrefix(), 60_000, 0, "s").StringSlice()
			if copied := c.ZCard(ctx, shot.lines[0]).Val(); err != nil || f[0] != want || strconv.FormatInt(copied, 10) != want {
				t.Fatalf("%q, %v, and %d lines are copied; want %s", f, err, copied, want)
			}
			if left := c.PTTL(ctx, shot.lines[0]).Val(); left <= 0 || left > time.Minute {
				t.Fatalf("the copy of the lines stays for %s", left)
			}
		}
	})
}

// What is gone when it runs for the second time is in no copy any more: it would be counted there, and where it has
// gone to.
func TestSnapshotThatRunsTwiceHasTheLaterInstant(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
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
			{"the first run", func() { fill("1", "2") }, 2},
			{"the same again", func() {}, 2},
			{"less is there", func() { c.Del(ctx, sources...); fill("3") }, 1},
			{"nothing is there", func() { c.Del(ctx, sources...) }, 0},
		} {
			step.do()
			if err := h.Stock.snapshot.Run(ctx, c, shot.keys([]string{"b"}, []string{"s"}), shard.BatchPrefix(), 60_000, 1, "s").Err(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			for i, n := range []int64{c.LLen(ctx, copies[0]).Val(), c.ZCard(ctx, copies[1]).Val(), c.XLen(ctx, copies[2]).Val(), c.LLen(ctx, copies[3]).Val(), c.HLen(ctx, copies[4]).Val()} {
				if n != step.want {
					t.Errorf("%s: the copy of %s has %d, want %d", step.name, sources[i], n, step.want)
				}
				if left := c.PTTL(ctx, copies[i]).Val(); n > 0 && (left <= 0 || left > time.Minute) {
					t.Errorf("%s: the copy of %s stays for %s", step.name, sources[i], left)
				}
			}
		}
	})
}
