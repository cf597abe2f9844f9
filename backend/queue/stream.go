package queue

import (
	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
)

// Where new messages go.
const (
	intoList   = "list"
	intoStream = "stream"
)

// Stream is the queue of one lane on a Redis stream with a consumer group. A new message is an entry of the stream until it is acknowledged; the consumer of
// the group is the batch, so what is leased can be looked at with XPENDING. A stream has no front: what comes back (a lease that ran out, a release, a
// retry) leaves the stream for the list of the lane, from which a take serves first. Leases, retries and dead letters are those of List, by the same
// scripts.
//
// List and Stream of one lane may be used at the same time. Each gives out what the other has pushed; between the two, no order is kept.
type Stream struct{ *List }

// NewStream makes the queue of a lane. It does not talk to Redis.
func NewStream(client redis.UniversalClient, lane keyspace.Lane, cfg Config) *Stream {
	l := NewList(client, lane, cfg)
	l.into = intoStream
	return &Stream{l}
}
