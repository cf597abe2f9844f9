package events

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Progress tells how far a group has come without a gap, for who needs the order of all events though several instances handle them. It is safe for concurrent use.
type Progress struct {
	client redis.UniversalClient
	space  keyspace.Space
	store  *Store
	group  string

	mu               sync.Mutex
	known            int64
	asked, askedTold time.Time
}

// NewProgress makes a Progress. It does not connect yet.
func NewProgress(client redis.UniversalClient, space keyspace.Space, db *Store, group string) *Progress {
	return &Progress{client: client, space: space, store: db, group: group}
}

const (
	progressFor     = 10 * time.Millisecond // how long what Redis said is good enough
	progressTimeout = time.Second           // how long Redis may take
	progressToldFor = time.Second           // and what SQL said, which knows less, and knows it though Redis has lost it
)

// Position is one up to which the group has acknowledged every event. It never falls: what was acknowledged stays so. While a store is down it is what was known before.
func (p *Progress) Position(ctx context.Context) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.asked) >= progressFor {
		n, err := p.acknowledged(ctx)
		p.known, p.asked = max(p.known, n), time.Now()
		if err != nil { // who asks must not wait for it each time
			p.asked = p.asked.Add(progressToldFor)
		}
	}
	if time.Since(p.askedTold) >= progressToldFor {
		n, err := p.store.RelayedThrough(ctx)
		if p.askedTold = time.Now(); err == nil {
			p.known = max(p.known, n)
		}
	}
	return p.known
}

// acknowledged asks Redis: first how far events were given out, then which of these is pending. Asked the other way round, one that is given out in between would be missed.
func (p *Progress) acknowledged(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	groups, err := p.client.XInfoGroups(ctx, p.space.Events()).Result()
	if err != nil {
		return 0, wrap("progress", err)
	}
	for _, g := range groups {
		if g.Name != p.group {
			continue
		}
		pending, err := p.client.XPending(ctx, p.space.Events(), p.group).Result()
		if err != nil {
			return 0, wrap("progress", err)
		}
		upTo := PositionOf(g.LastDeliveredID)
		if pending.Count > 0 {
			upTo = min(upTo, PositionOf(pending.Lower)-1)
		}
		return upTo, nil
	}
	return 0, ErrRemoved
}
