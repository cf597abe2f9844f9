package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
)

// List is the queue of one shard on Redis lists. Redis's clock is the only one it goes by. It is safe for concurrent use.
//
// It also gives out what the stream of the shard holds, should there be any: see Stream.
//
// Errors wrap sale.ErrUnavailable when Redis is at fault (unreachable, too slow, loading, read-only, full); the call may then
// have been carried out or not, and doing it again is safe. For CallTimeout to bound a call, the client needs
// ContextTimeoutEnabled; without it the client's own timeouts and retries do.
type List struct {
	client redis.UniversalClient
	shard  keyspace.Shard
	cfg    Config
	into   string // where new messages go: list or stream

	push, take, ack, release, extend, bury       *redis.Script
	expired, rewind, reclaim, promote            *redis.Script
	deadRetry, deadBeginCancel, deadFinishCancel *redis.Script
	deadDrop                                     *redis.Script
}

// NewList makes the queue of a shard. It does not talk to Redis.
func NewList(client redis.UniversalClient, shard keyspace.Shard, cfg Config) *List {
	load := redisscript.Load
	return &List{
		client: client, shard: shard, cfg: cfg.withDefaults(), into: intoList,
		push: load("enqueue"), take: load("take"), ack: load("ack"), release: load("release"), extend: load("extend_lease"), bury: load("dead_letter"),
		expired: load("expired_leases"), rewind: load("clamp_deadlines"), reclaim: load("reclaim"), promote: load("promote_delayed"),
		deadRetry: load("dead_retry"), deadBeginCancel: load("dead_begin_cancel"), deadFinishCancel: load("dead_finish_cancel"),
		deadDrop: load("dead_drop"),
	}
}

// Lease is how long a batch may be kept without extending it.
func (l *List) Lease() time.Duration { return l.cfg.Lease }

func (l *List) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.cfg.CallTimeout)
}

// Push puts messages at the end of the queue, the first one first, and wakes a worker. Admission does not need it: its script
// pushes by itself. A message that is not valid is an error, and then none of them is pushed.
func (l *List) Push(ctx context.Context, messages ...Message) error {
	texts := make([]any, len(messages))
	for i, m := range messages {
		text := keyspace.EncodeMessage(m)
		if _, err := keyspace.DecodeMessage(text); err != nil {
			return fmt.Errorf("queue: push %s: %w", m.ID, err)
		}
		texts[i] = text
	}
	for part := range slices.Chunk(texts, MaxBatch) {
		if err := l.pushTexts(ctx, part); err != nil {
			return wrap("push", err)
		}
	}
	return nil
}

func (l *List) pushTexts(ctx context.Context, texts []any) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	keys := []string{l.shard.Ready(), l.shard.Wake(), l.shard.Guard()}
	if l.into == intoStream {
		keys = append(keys, l.shard.Orders())
	}
	return l.push.Run(ctx, l.client, keys, texts...).Err()
}

// Wait blocks until there may be something to take (true), or until timeout has passed (false). From half a second on, timeout is rounded up to
// whole seconds. It keeps a connection busy. A cancelled ctx is noticed when the wait ends, so the timeout should stay around a second.
func (l *List) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Second+l.cfg.CallTimeout)
	defer cancel()
	if timeout >= time.Second/2 {
		err = l.client.BLPop(ctx, (timeout + time.Second - 1).Truncate(time.Second), l.shard.Wake()).Err()
	} else { // BLPop knows whole seconds only; it alone may outlast the client's read timeout
		err = l.client.Do(ctx, "BLPOP", l.shard.Wake(), max(timeout, time.Millisecond).Seconds()).Err()
	}
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, wrap("wait", err)
}
