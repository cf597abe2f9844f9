package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// letterShard is a shard with these dead letters, or one that does not respond.
type letterShard struct {
	countedShard
	letters map[sale.OrderID]queue.DeadLetter
}

func (s letterShard) DeadLetter(_ context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	if s.letters == nil {
		return queue.DeadLetter{}, sale.ErrUnavailable
	}
	letter, found := s.letters[id]
	if !found {
		return queue.DeadLetter{}, sale.ErrNotFound
	}
	return letter, nil
}

// The shard that allocated the id of an order has its dead letter. Another shard, which may be down, is not read.
func TestDeadLetterIsReadFromItsShardOnly(t *testing.T) {
	ofShard := func(shard uint32) sale.OrderID { return sale.NewOrderID(time.Now(), 3*7+shard) }
	dead, missing := ofShard(1), sale.NewOrderID(time.Now(), 3*8+1)
	up := letterShard{letters: map[sale.OrderID]queue.DeadLetter{dead: {Key: dead.String()}}}
	shards := queue.Shards{letterShard{}, up, letterShard{}}
	if letter, err := shards.DeadLetter(t.Context(), dead); err != nil || letter.Key != dead.String() {
		t.Errorf("%+v, %v", letter, err)
	}
	if _, err := shards.DeadLetter(t.Context(), missing); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("an order without a dead letter: %v", err)
	}
	for _, shard := range []uint32{0, 2} {
		if _, err := shards.DeadLetter(t.Context(), ofShard(shard)); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("shard %d does not respond: %v", shard, err)
		}
	}
}

// A shard that is down hides its own orders only: their dead letters, and whether they still wait for a worker.
func TestShardsWhileOneIsDown(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			var servers [2]*testenv.Redis
			var lists [2]*queue.List
			var orders []sale.OrderID // dead in shard 0, dead in shard 1, waiting in 0, waiting in 1
			for i := range servers {
				servers[i] = testenv.StartRedis(t)
				lists[i] = queue.NewList(servers[i].Client(), keyspace.Shard(i), queue.Config{Stream: stream})
			}
			shards := queue.Shards{lists[0], lists[1]}
			for n := range uint32(4) {
				m := message(1)
				m.ID = sale.NewOrderID(time.Now(), n)
				orders = append(orders, m.ID)
				list := lists[n%2]
				wantEmpty := func(want bool) {
					t.Helper()
					if empty, err := shards.Empty(t.Context(), m.ID); err != nil || empty != want {
						t.Errorf("order %d: empty %t, %v; want %t", n, empty, err, want)
					}
				}
				wantEmpty(true)
				push := func() {
					if err := list.Push(t.Context(), m); err != nil {
						t.Fatal(err)
					}
				}
				push()
				wantEmpty(false)
				if n < 2 {
					b, _, err := queuetest.Take(t.Context(), list, 1, "")
					if err != nil {
						t.Fatal(err)
					}
					wantEmpty(false) // it is leased
					failure := queue.Failure{ID: m.ID, Reason: "no", Permanent: true}
					if _, err := list.Ack(t.Context(), b.ID, failure); err != nil {
						t.Fatal(err)
					}
					wantEmpty(true)
				}
			}
			dead := func() (ids []sale.OrderID) {
				found := make(chan sale.OrderID, len(orders))
				shards.Dead(t.Context(), orders, func(id sale.OrderID) { found <- id })
				close(found)
				for id := range found {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				return ids
			}
			if got := dead(); !slices.Equal(got, orders[:2]) {
				t.Errorf("dead orders %v of %v", got, orders)
			}
			servers[0].Kill()
			if got := dead(); !slices.Equal(got, orders[1:2]) {
				t.Errorf("shard 0 is down: dead orders %v of %v", got, orders)
			}
			if empty, err := shards.Empty(t.Context(), orders[3]); err != nil || empty {
				t.Errorf("shard 0 is down: shard 1 is empty: %t, %v", empty, err)
			}
			if _, err := shards.Empty(t.Context(), orders[2]); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("shard 0, which is down, is empty: %v", err)
			}
		})
	}
}
