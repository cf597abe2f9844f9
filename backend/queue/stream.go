package queue

import (
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Where Push adds messages.
const (
	intoList   = "list"
	intoStream = "stream"
)

// Stream is the queue of one shard on a Redis stream with a consumer group. A new message is an entry of the stream
// until it is acknowledged. Each batch is a consumer of the group, so that XPENDING lists leased messages. A stream
// has no front, so requeued messages (an expired lease, a release, a retry) move to the shard's list, which a take
// reads first. Leases, retries and dead letters use the same scripts as List.
//
// List and Stream of one shard may be used concurrently. Each returns the messages that the other pushed. Order is kept
// within each, not between the two.
type Stream struct{ *List }

// NewStream returns the queue of a shard. It does not connect to Redis.
func NewStream(client redis.UniversalClient, shard keyspace.Shard, cfg Config) *Stream {
	l := NewList(client, shard, cfg)
	l.into = intoStream
	return &Stream{l}
}
