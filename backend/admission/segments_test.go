package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// halves is a sale with two segments over two shards of one Redis.
type halves struct {
	*Segments
	c     redisconn.Client
	space keyspace.Space
	of    spread.Sale
}

func newHalves(t *testing.T, c redisconn.Client, units ...int64) *halves {
	t.Helper()
	space := keyspace.Space{Shards: 2}
	h := &halves{NewSegments(c, space, nil), c, space, spread.Sale{ID: "s", Spread: 2}}
	for i, n := range units {
		h.load(t, i, spread.Allocation{Units: n, Version: 1}, n)
	}
	return h
}

func (h *halves) shard(segment int) keyspace.Shard { return h.space.ShardOfSegment("s", segment) }

// beginRebuild returns the mark of a new rebuild of the shard of a segment.
func (h *halves) beginRebuild(segment int) string {
	return fmt.Sprint(h.c.HIncrBy(context.Background(), h.shard(segment).Guard(), "fence", 1).Val(), " 0")
}

// load loads a segment as a rebuild does.
func (h *halves) load(t *testing.T, segment int, allocation spread.Allocation, left int64) {
	t.Helper()
	ctx, shard, def := context.Background(), h.shard(segment), onSale("s", allocation.Units, 1)
	mark := h.beginRebuild(segment)
	keys := []string{shard.Guard(), shard.Sale("s"), shard.Stock("s"), shard.Sales(), shard.Returns("s")}
	args := append([]any{mark}, SaleArgs(def, left, 0, spread.PartOf("s", segment, 2), allocation.Version, 0, nil)...)
	err := redisscript.Run(ctx, h.c, "rebuild_sale", keys, args...).Err()
	if err == nil {
		err = redisscript.Run(ctx, h.c, "rebuild_resume_sales", keys[:2], mark, def.Version, "on").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// buy runs the script for one purchase in a segment and returns its answer.
func (h *halves) buy(segment int, home, buyer string) (string, error) {
	shard := h.shard(segment)
	keys := []string{
		shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.Ready(), shard.Wake(), shard.Dedup(buyer, "key"),
	}
	saleID := strings.TrimSpace("s " + home)
	return redisscript.Run(context.Background(), h.c, "admit", keys, saleID, "", 0, "", "7"+buyer, buyer, "f 60000").Text()
}

func (h *halves) want(t *testing.T, segment int, want spread.State) {
	t.Helper()
	states, err := h.States(context.Background(), h.of)
	if err != nil {
		t.Fatal(err)
	}
	have := states[segment]
	have.Returns = 0
	if want.Out != nil && have.Out != nil && *want.Out == *have.Out {
		have.Out, want.Out = nil, nil
	}
	if have != want {
		t.Fatalf("segment %d is %+v, out %+v; want %+v, out %+v", segment, have, have.Out, want, want.Out)
	}
}

func (h *halves) apply(t *testing.T, segment int, to spread.Allocation) {
	t.Helper()
	if err := h.Apply(context.Background(), h.of, segment, to); err != nil {
		t.Fatal(err)
	}
}

func (h *halves) setApart(t *testing.T, m spread.Move) *spread.Transfer {
	t.Helper()
	transfer, err := h.SetApart(context.Background(), h.of, m)
	if err != nil {
		t.Fatal(err)
	}
	return transfer
}

func TestUnitsAreSetApartOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		want := spread.Transfer{From: 0, To: 1, Units: 3, Version: 1}
		for _, units := range []int64{3, 3, 2} { // a repetition, and another process with another plan
			if got := h.setApart(t, spread.Move{From: 0, To: 1, Units: units}); got == nil || *got != want {
				t.Fatalf("set apart %+v, want %+v", got, want)
			}
		}
		h.want(t, 0, spread.State{Loaded: true, Version: 1, Units: 5, Left: 2, Out: &want})
		if got := h.setApart(t, spread.Move{From: 1, To: 0, Units: 99}); got.Units != 5 {
			t.Fatalf("%+v of 5 units left", got)
		}
	})
}

// A process of another deployment moves no units, even before its guard has checked.
func TestUnitsOfAnotherDeploymentDoNotMove(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		c.HSet(t.Context(), h.shard(0).Guard(), "deployment", 7)
		before := spread.State{Loaded: true, Version: 1, Units: 5, Left: 5}
		h.deployment = func() int64 { return 8 }
		transfer, err := h.SetApart(t.Context(), h.of, spread.Move{From: 0, To: 1, Units: 3})
		if transfer != nil || !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("set apart %+v, %v, want ErrUnavailable", transfer, err)
		}
		newer := spread.Allocation{Units: 9, Version: 2}
		if err := h.Apply(t.Context(), h.of, 0, newer); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("an allocation: %v, want ErrUnavailable", err)
		}
		h.want(t, 0, spread.State{}) // a transfer in it would be committed in another database
		h.deployment = func() int64 { return 7 }
		h.want(t, 0, before)
		h.apply(t, 0, newer)
		h.want(t, 0, spread.State{Loaded: true, Version: 2, Units: 9, Left: 9})
	})
}

func TestNothingIsSetApartOfAnEmptySegment(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 0, 5)
		if got := h.setApart(t, spread.Move{From: 0, To: 1, Units: 1}); got != nil {
			t.Fatalf("set apart %+v", got)
		}
		h.want(t, 0, spread.State{Loaded: true, Version: 1})
	})
}

// A committed transfer is part of the new allocation; a reverted one returns. The script does both by one rule.
func TestApplyEndsTheTransfer(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		for name, to := range map[string]spread.Allocation{
			"committed":                 {Units: 2, Version: 2},
			"committed, then restocked": {Units: 6, Version: 3},
			"reverted by a restock":     {Units: 9, Version: 2},
			"reverted by a claim":       {Units: 5, Version: 2},
		} {
			t.Run(name, func(t *testing.T) {
				h := newHalves(t, c, 5, 5)
				h.setApart(t, spread.Move{From: 0, To: 1, Units: 3})
				for range 2 {
					h.apply(t, 0, to)
					h.want(t, 0, spread.State{Loaded: true, Version: to.Version, Units: to.Units, Left: to.Units})
				}
				h.apply(t, 0, spread.Allocation{Units: 5, Version: 1}) // older
				h.want(t, 0, spread.State{Loaded: true, Version: to.Version, Units: to.Units, Left: to.Units})
			})
		}
	})
}

func TestApplyRefusesLessThanTheOrders(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 1, 5)
		if answer, err := h.buy(0, "0/2", "ann"); answer != "accepted" || err != nil {
			t.Fatalf("answer %q, %v", answer, err)
		}
		err := h.Apply(context.Background(), h.of, 0, spread.Allocation{Units: 0, Version: 2})
		if !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		h.want(t, 0, spread.State{Loaded: true, Version: 1, Units: 1, Sold: 1})
	})
}

// Only the home of a buyer decides. A script with another spread, or without one, is rejected and writes nothing.
func TestOnlyTheHomeDecides(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		for _, home := range []string{"1/2", "0/3", ""} {
			if answer, err := h.buy(0, home, "ann"); err == nil || !strings.HasPrefix(err.Error(), "SEGMENT") {
				t.Errorf("home %q: answer %q, %v", home, answer, err)
			}
		}
		for _, of := range []spread.Sale{{ID: "s", Spread: 3}, {ID: "other", Spread: 2}} {
			if m, err := h.SetApart(context.Background(), of, spread.Move{To: 1, Units: 1}); err == nil {
				t.Errorf("%+v: set apart %+v", of, m)
			}
			if err := h.Apply(context.Background(), of, 0, spread.Allocation{Units: 9, Version: 9}); err == nil {
				t.Errorf("%+v: applied", of)
			}
		}
		h.want(t, 0, spread.State{Loaded: true, Version: 1, Units: 5, Left: 5})
		if answer, err := h.buy(0, "0/2", "ann"); answer != "accepted" || err != nil {
			t.Fatalf("answer %q, %v", answer, err)
		}
	})
}

// The serials of the segments of a sale differ, so that SQL can count the orders of one segment.
func TestSerialsOfSegmentsDiffer(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		var serials []int64
		for segment, home := range []string{"0/2", "1/2"} {
			if answer, err := h.buy(segment, home, "1"); answer != "accepted" || err != nil {
				t.Fatalf("answer %q, %v", answer, err)
			}
			m, err := keyspace.DecodeMessage(c.LIndex(context.Background(), h.shard(segment).Ready(), 0).Val())
			if err != nil {
				t.Fatal(err)
			}
			serials = append(serials, m.Serial)
		}
		if !slices.Equal(serials, []int64{1, 1<<40 + 1}) {
			t.Fatalf("serials %v", serials)
		}
	})
}

// An update of the definition changes no units of a segment: only its allocation does.
func TestUpdateKeepsTheUnitsOfASegment(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		shard, def := h.shard(0), onSale("s", 30, 1)
		args := append(append([]any{2, "paused"}, definition(def)...), "")
		keys := []string{shard.Sale("s"), shard.Stock("s"), shard.Guard()}
		if answer := redisscript.Run(context.Background(), c, "update_sale", keys, args...).Val(); answer != "applied" {
			t.Fatalf("answer %v", answer)
		}
		h.want(t, 0, spread.State{Loaded: true, Version: 1, Units: 5, Left: 5})
		if answer, _ := h.buy(0, "0/2", "ann"); !strings.HasPrefix(answer, "paused 2 ") {
			t.Fatalf("answer %q", answer)
		}
	})
}

// While a rebuild holds a segment, the segment is not loaded and takes part in no transfer. The rebuild deletes its
// outgoing transfer.
func TestRebuildOfASegment(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		h := newHalves(t, c, 5, 5)
		h.setApart(t, spread.Move{From: 0, To: 1, Units: 3})
		suspend := []string{h.shard(0).Guard(), h.shard(0).Sale("s")}
		if err := redisscript.Run(ctx, c, "rebuild_suspend_sales", suspend, h.beginRebuild(0)).Err(); err != nil {
			t.Fatal(err)
		}
		h.want(t, 0, spread.State{})
		if m, err := h.SetApart(ctx, h.of, spread.Move{To: 1, Units: 1}); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("set apart %+v, %v", m, err)
		}
		if err := h.Apply(ctx, h.of, 0, spread.Allocation{Units: 9, Version: 9}); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("applied: %v", err)
		}
		h.load(t, 0, spread.Allocation{Units: 5, Version: 2}, 5)
		h.want(t, 0, spread.State{Loaded: true, Version: 2, Units: 5, Left: 5})
		h.want(t, 1, spread.State{Loaded: true, Version: 1, Units: 5, Left: 5})
	})
}

// A sale that is loaded again without segments keeps no field of one.
func TestWholeSaleHasNoSegment(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		shard := h.shard(0)
		keys := []string{shard.Guard(), shard.Sale("s"), shard.Stock("s"), shard.Sales(), shard.Returns("s")}
		args := append([]any{h.beginRebuild(0)}, SaleArgs(onSale("s", 9, 1), 9, 0, spread.Part{SaleID: "s"}, 0, 0, nil)...)
		if err := redisscript.Run(context.Background(), c, "rebuild_sale", keys, args...).Err(); err != nil {
			t.Fatal(err)
		}
		fields := c.HMGet(context.Background(), shard.Sale("s"), "segment", "allocation", "out").Val()
		if slices.ContainsFunc(fields, func(f any) bool { return f != nil }) {
			t.Fatalf("fields %v", fields)
		}
	})
}

func TestUnreachableSegmentIsNotLoaded(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newHalves(t, c, 5, 5)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if states, err := h.States(ctx, h.of); err == nil || states[0].Loaded {
			t.Fatalf("states %+v, %v", states, err)
		}
		c.HSet(context.Background(), h.shard(1).Sale("s"), "out", "garbage")
		states, err := h.States(context.Background(), h.of)
		if err != nil || !states[0].Loaded || states[1].Loaded {
			t.Fatalf("states %+v, %v", states, err)
		}
	})
}
