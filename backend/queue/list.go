package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
)

// List is the queue of one shard on a Redis list, or on a stream (Config.Stream). All times are those of Redis's clock.
// It is safe for concurrent use.
//
// With Config.Stream, a new message is an entry of a Redis stream with a consumer group until it is acknowledged. Each
// batch is a consumer of the group, so that XPENDING lists leased messages. A stream has no front, so requeued messages
// (an expired lease, a release, a retry) move to the list, which a take reads first. Lists with and without Stream may
// use one shard concurrently: each returns the messages that the other pushed. The order of messages is kept within the
// list and within the stream, not between the two.
//
// Errors wrap sale.ErrUnavailable when Redis is unreachable, too slow, loading, read-only or full. The call may have
// been executed then, and repeating it is safe. CallTimeout bounds calls only if the client has
// ContextTimeoutEnabled; otherwise the client's own timeouts and retries apply.
type List struct {
	client redisconn.Client
	shard  keyspace.Shard
	cfg    Config
}

// NewList returns the queue of a shard. It does not connect to Redis.
func NewList(client redisconn.Client, shard keyspace.Shard, cfg Config) *List {
	return &List{client: client, shard: shard, cfg: cfg.withDefaults()}
}

// Lease returns the duration of a lease.
func (l *List) Lease() time.Duration { return l.cfg.Lease }

func (l *List) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.cfg.CallTimeout)
}

// run runs a script of lua/redis.
func (l *List) run(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return redisscript.Run(ctx, l.client, script, keys, args...)
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
	keys := []string{l.shard.Ready(), l.shard.Wake(), l.shard.Guard()}
	if l.cfg.Stream {
		keys = append(keys, l.shard.Orders())
	}
	for part := range slices.Chunk(texts, MaxBatch) {
		if err := l.run(ctx, "enqueue", keys, part...).Err(); err != nil {
			return wrap("push", err)
		}
	}
	return nil
}

// Wait blocks until a message may be ready and returns true, or until timeout and returns false; see
// redisconn.AwaitToken. The timeout should be about a second, because the end of ctx does not end the call earlier.
func (l *List) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Second+l.cfg.CallTimeout)
	defer cancel()
	woken, err = redisconn.AwaitToken(ctx, l.client, l.shard.Wake(), timeout)
	return woken, wrap("wait", err)
}

// Empty reports that nothing is ready, delayed or leased. It costs one round trip, without a script. A call to TakeAs
// at that instant would return no messages. The stream is counted first, because messages move from the stream to the
// list, and not back.
func (l *List) Empty(ctx context.Context) (bool, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	var keys, entries *redis.IntCmd
	cmds, _ := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		entries = p.XLen(ctx, l.shard.Orders()) // not EXISTS, because a stream without entries exists
		keys = p.Exists(ctx, l.shard.Ready(), l.shard.Delayed(), l.shard.Leases())
		return nil
	})
	if err := redisconn.PipelineError(cmds); err != nil {
		return false, wrap("check for messages", err)
	}
	return keys.Val()+entries.Val() == 0, nil
}
