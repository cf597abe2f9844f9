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

// List is the queue of one shard on Redis lists. All times are those of Redis's clock. It is safe for concurrent use.
//
// A take also returns the messages of the shard's stream, if it has any: see Stream.
//
// Errors wrap sale.ErrUnavailable when Redis is unreachable, too slow, loading, read-only or full. The call may have
// been executed then, and repeating it is safe. CallTimeout bounds calls only if the client has
// ContextTimeoutEnabled; otherwise the client's own timeouts and retries apply.
type List struct {
	client redis.UniversalClient
	shard  keyspace.Shard
	cfg    Config
	into   string // where Push adds messages: intoList or intoStream

	push, take, ack, release, extend, bury       *redis.Script
	expired, rewind, reclaim, promote            *redis.Script
	deadRetry, deadBeginCancel, deadFinishCancel *redis.Script
	deadDrop                                     *redis.Script
}

// NewList returns the queue of a shard. It does not connect to Redis.
func NewList(client redis.UniversalClient, shard keyspace.Shard, cfg Config) *List {
	load := redisscript.Load
	return &List{
		client: client,
		shard:  shard,
		cfg:    cfg.withDefaults(),
		into:   intoList,
		push: load(
			"enqueue",
		),
		take:    load("take"),
		ack:     load("ack"),
		release: load("release"),
		extend:  load("extend_lease"),
		bury:    load("dead_letter"),
		expired: load(
			"expired_leases",
		),
		rewind:  load("clamp_deadlines"),
		reclaim: load("reclaim"),
		promote: load("promote_delayed"),
		deadRetry: load(
			"dead_retry",
		),
		deadBeginCancel:  load("dead_begin_cancel"),
		deadFinishCancel: load("dead_finish_cancel"),
		deadDrop:         load("dead_drop"),
	}
}

// Lease returns the duration of a lease.
func (l *List) Lease() time.Duration { return l.cfg.Lease }

func (l *List) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.cfg.CallTimeout)
}

// Push appends messages to the queue in their order and wakes a worker. Admission does not call it, because the
// admission script enqueues the order itself. If a message is invalid, Push returns an error and adds none.
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

// Wait blocks until a message may be ready and returns true, or until timeout and returns false. A timeout of half a
// second or more is rounded up to whole seconds. Wait occupies a connection and returns only after the timeout when
// ctx is cancelled, so the timeout should be about a second.
func (l *List) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Second+l.cfg.CallTimeout)
	defer cancel()
	if timeout >= time.Second/2 {
		err = l.client.BLPop(ctx, (timeout + time.Second - 1).Truncate(time.Second), l.shard.Wake()).Err()
	} else { // BLPop accepts only whole seconds; it alone may exceed the client's read timeout
		err = l.client.Do(ctx, "BLPOP", l.shard.Wake(), max(timeout, time.Millisecond).Seconds()).Err()
	}
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, wrap("wait", err)
}
