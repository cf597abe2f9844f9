package queue_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

func newMiniredisList(t *testing.T) (redisconn.Client, *queue.List) {
	t.Helper()
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	return client, queue.NewList(client, 0, queue.Config{})
}

// A Redis that has lost the consumers assigns their numbers again. Late calls of their former owners lease nothing.
func TestRemovedConsumerLeasesNothing(t *testing.T) {
	client, l := newMiniredisList(t)
	removed := registered(t, l)
	want := push(t, l, 1)
	client.Del(t.Context(), keyspace.Shard(0).Consumers())
	for _, state := range []string{"no consumer", "another consumer with its number"} {
		if b, _, err := l.TakeAs(t.Context(), removed.BatchID(1), 1, ""); !errors.Is(err, queue.ErrUnregistered) {
			t.Errorf("%s: a removed consumer took %v, %v", state, b, err)
		}
		registered(t, l)
	}
	if b := take(t, l, 1); len(b.Messages) != 1 || b.Messages[0] != want[0] {
		t.Errorf("a registered consumer took %v", b)
	}
}

// A batch stays leased until its worker acknowledges it, although its consumer is removed in the meantime.
func TestRemovedConsumerAcknowledges(t *testing.T) {
	client, l := newMiniredisList(t)
	push(t, l, 2)
	b := take(t, l, 1)
	client.Del(t.Context(), keyspace.Shard(0).Consumers())
	again := registered(t, l)
	if _, lost, err := l.TakeAs(t.Context(), again.BatchID(1), 1, b.ID); lost || err != nil {
		t.Errorf("the take that acknowledges it: lost=%v, %v", lost, err)
	}
	if s, err := l.Stats(t.Context()); err != nil || s.Leases != 1 || s.Leased != 1 || s.Ready != 0 {
		t.Errorf("stats %+v, %v", s, err)
	}
}

func TestBatchIDsThatAreNotOfAConsumerLeaseNothing(t *testing.T) {
	_, l := newMiniredisList(t)
	push(t, l, 1)
	consumer := registered(t, l)
	for _, id := range []string{"", "x", "-1-1", "last", "x-1", string(consumer), "other-1-1", string(consumer) + "-x"} {
		if b, _, err := l.TakeAs(t.Context(), id, 1, ""); !errors.Is(err, queue.ErrUnregistered) {
			t.Errorf("batch %q: took %v, %v", id, b, err)
		}
	}
}

func TestNumberOfConsumersIsBounded(t *testing.T) {
	const kept = 4096
	client, l := newMiniredisList(t)
	push(t, l, 2)
	first, second := registered(t, l), registered(t, l)
	for range kept - 1 {
		registered(t, l)
	}
	if n := client.HLen(t.Context(), keyspace.Shard(0).Consumers()).Val(); n != kept+1 { // and the last number
		t.Errorf("%d fields, want %d", n, kept+1)
	}
	if last := client.HGet(t.Context(), keyspace.Shard(0).Consumers(), "last").Val(); last != strconv.Itoa(kept+1) {
		t.Errorf("last is %s", last)
	}
	if _, _, err := l.TakeAs(t.Context(), first.BatchID(1), 1, ""); !errors.Is(err, queue.ErrUnregistered) {
		t.Errorf("the first of %d consumers: %v", kept+1, err)
	}
	if b, _, err := l.TakeAs(t.Context(), second.BatchID(1), 1, ""); len(b.Messages) != 1 || err != nil {
		t.Errorf("the second of %d consumers took %v, %v", kept+1, b, err)
	}
}
