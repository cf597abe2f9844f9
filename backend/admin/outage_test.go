package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// saleIn creates a sale in a shard.
func (w *world) saleIn(shard int, stock int64) string {
	w.t.Helper()
	for i := 0; ; i++ {
		if id := fmt.Sprint("s", i); int(space.ShardOf(id)) == shard {
			w.create(id, stock)
			return id
		}
	}
}

// A shard that is down hides its own dead letters only, and the list names it.
func TestDeadLettersAreListedWhileAShardIsDown(t *testing.T) {
	for down := range shards {
		w, servers := newSplitWorld(t)
		up := 1 - down
		var sales [shards]string
		var dead [shards][]sale.OrderID
		for shard := range sales {
			sales[shard] = w.saleIn(shard, 5)
			for _, buyer := range []string{"ann", "bob", "cid"} {
				dead[shard] = append(dead[shard], w.makeDead(sales[shard], buyer).ID)
			}
		}
		list := func(q queue.DeadQuery) (ids []sale.OrderID, unavailable []int) {
			t.Helper()
			for {
				page, err := w.dead.List(w.ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page.Letters {
					ids = append(ids, l.Message.ID)
				}
				unavailable = append(unavailable, page.Unavailable...)
				if q.After = page.Next; q.After == "" {
					return ids, unavailable
				}
			}
		}
		first, err := w.dead.List(w.ctx, queue.DeadQuery{Limit: 2}) // it ends within shard 0
		if err != nil {
			t.Fatal(err)
		}
		servers[down].Kill()
		rest := dead[0][2:]
		if down == 0 {
			rest = dead[1]
		}
		for _, c := range []struct {
			query       queue.DeadQuery
			want        []sale.OrderID
			unavailable []int
		}{
			{queue.DeadQuery{Limit: 1}, dead[up], []int{down}},
			{queue.DeadQuery{Limit: 3}, dead[up], []int{down}},
			{queue.DeadQuery{}, dead[up], []int{down}},
			{queue.DeadQuery{Limit: 2, After: first.Next}, rest, []int{down}},
			{queue.DeadQuery{SaleID: sales[up]}, dead[up], nil},
		} {
			ids, unavailable := list(c.query)
			if !slices.Equal(ids, c.want) || !slices.Equal(unavailable, c.unavailable) {
				t.Errorf("shard %d is down: %+v has %v without shards %v; want %v", down, c.query, ids, unavailable, c.want)
			}
		}
		wantUnavailable(t, errOf(w.dead.List(w.ctx, queue.DeadQuery{SaleID: sales[down]})), down)
		servers[up].Kill()
		wantUnavailable(t, errOf(w.dead.List(w.ctx, queue.DeadQuery{})), 0, 1)
	}
}

// The dead orders of a shard that is down are not settled, and the result names the shard.
func TestDeadOrdersAreSettledWhileAShardIsDown(t *testing.T) {
	for down := range shards {
		w, servers := newSplitWorld(t)
		var dead [shards]sale.OrderID
		for shard := range dead {
			dead[shard] = w.makeDead(w.saleIn(shard, 5), "ann").ID
		}
		servers[down].Kill()
		page, err := w.dead.Settle(w.ctx, Settlement{Verb: CancelDead})
		if err != nil || page.Next != "" || !slices.Equal(page.Unavailable, []int{down}) || len(page.Orders) != 1 ||
			page.Orders[0].DeadLetter.Message.ID != dead[1-down] || !page.Orders[0].UnitReturned {
			t.Errorf("shard %d is down: %+v, %v", down, page, err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// wantUnavailable checks that err names these shards.
func wantUnavailable(t *testing.T, err error, shards ...int) {
	t.Helper()
	e, ok := errors.AsType[*UnavailableError](err)
	if !ok || !slices.Equal(e.Shards, shards) || !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want an error that shards %v are unavailable", err, shards)
	}
	if ok && !strings.Contains(err.Error(), fmt.Sprint(shards[len(shards)-1])) {
		t.Errorf("the message %q does not name shard %d", err, shards[len(shards)-1])
	}
}
