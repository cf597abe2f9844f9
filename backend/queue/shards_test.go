package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
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
