package queue

import (
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Where new messages go.
const (
	intoList   = "list"
	intoStream = "stream"
)

// Stream is the queue of one shard on a Redis stream with a consumer group. A new message is an entry of the stream until it is acknowledged; the consumer of
// the group is the batch, so what is leased can be looked at with XPENDING. A stream has no front: what comes back (a lease that ran out, a release, a
// retry) leaves the stream for the list of the shard, from which a take serves first. Leases, retries and dead letters are those of List, by the same
// scripts.
//
// List and Stream of one shard may be used at the same time. Each gives out what the other has pushed; between the two, no order is kept.
type Stream struct{ *List }

// NewStream makes the queue of a shard. It does not talk to Redis.
func NewStream(client redis.UniversalClient, shard keyspace.Shard, cfg Config) *Stream {
	l := NewList(client, shard, cfg)
	l.into = intoStream
	return &Stream{l}
}
