package events

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// Progress returns how far a group has come without gaps, for consumers that need the order of all events although
// several instances handle them. It is safe for concurrent use.
type Progress struct {
	client redisconn.Client
	space  keyspace.Space
	store  *Store
	group  string

	mu                 sync.Mutex
	known              int64
	redisRead, sqlRead time.Time
}

// NewProgress returns a Progress. It does not connect to Redis.
func NewProgress(client redisconn.Client, space keyspace.Space, db *Store, group string) *Progress {
	return &Progress{client: client, space: space, store: db, group: group}
}

const (
	progressRedisFor = 10 * time.Millisecond // lifetime of a position read from Redis
	progressTimeout  = time.Second           // how long Redis may take
	// lifetime of a position read from SQL, which is older and survives a loss of Redis
	progressSQLFor = time.Second
)

// Position returns a position up to which the group has acknowledged every event. It never decreases. While a store is
// down, it is the last known one.
func (p *Progress) Position(ctx context.Context) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.redisRead) >= progressRedisFor {
		n, err := p.acknowledged(ctx)
		p.known, p.redisRead = max(p.known, n), time.Now()
		if err != nil { // so that not every caller waits for the timeout
			p.redisRead = p.redisRead.Add(progressSQLFor)
		}
	}
	if time.Since(p.sqlRead) >= progressSQLFor {
		n, err := p.store.RelayedThrough(ctx)
		if p.sqlRead = time.Now(); err == nil {
			p.known = max(p.known, n)
		}
	}
	return p.known
}

// acknowledged reads the last delivered event from Redis before the pending ones. In the other order it would miss an
// event that is delivered in between.
func (p *Progress) acknowledged(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	groups, err := groupsInRedis(ctx, p.client, p.space)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(groups, func(g redis.XInfoGroup) bool { return g.Name == p.group })
	if i < 0 {
		return 0, ErrNoGroup
	}
	pending, err := p.client.XPending(ctx, p.space.Events(), p.group).Result()
	if err != nil {
		return 0, wrap("progress", err)
	}
	upTo := PositionOf(groups[i].LastDeliveredID)
	if pending.Count > 0 {
		upTo = min(upTo, PositionOf(pending.Lower)-1)
	}
	return upTo, nil
}
