package rebuild

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/internal/loop"
)

const (
	// heartbeatInterval is the time between two heartbeats of a journal in SQL.
	heartbeatInterval = 2 * time.Second
	// alive is the time since the last heartbeat of a journal within which a rebuild waits for it; see silent.
	alive = 6 * time.Second
)

// heartbeats sends the heartbeats of one journal to SQL. They report the state of the journal to rebuilds, and show
// this process whether the heartbeats of others can be stored. It is safe for concurrent use.
type heartbeats struct {
	store   JournalStore
	journal string // id
	shard   keyspace.Shard
	log     *slog.Logger

	// state is what heartbeats report: the generation in which the orders have been restored; its negative while they are
	// being restored; 0 before, and after a file error. changed wakes send.
	state   atomic.Int64
	changed loop.Wake

	mu sync.Mutex
	// outage is the time of the last heartbeat that failed, was slow or followed a gap, or of the start of this process:
	// until then, the other backends may not have been able to send heartbeats either.
	outage time.Time
	stored time.Time // of the last heartbeat that SQL has stored
}

func newHeartbeats(cfg JournalWriterConfig) *heartbeats {
	now := time.Now()
	return &heartbeats{
		store: cfg.Store, journal: cfg.Journal.ID(), shard: cfg.Restorer.shard, log: cfg.Log,
		changed: loop.NewWake(), outage: now, stored: now,
	}
}

// report sets the state that heartbeats report.
func (h *heartbeats) report(state int64) {
	if h.state.Swap(state) != state {
		h.changed.Up()
	}
}

// Restored returns the generation of Redis in which the orders of the journal have been restored. It is not positive
// before and during a restoration, and after a file error. It can be positive while orders that were recorded late wait
// for the next restoration.
func (h *heartbeats) Restored() int64 { return h.state.Load() }

// Heartbeat stores in SQL that the journal is alive, and whether its orders are restored; see
// journal.Registry.Heartbeat. JournalWriter.Run calls it at least every two seconds.
func (h *heartbeats) Heartbeat(ctx context.Context) error {
	begun := time.Now()
	err := h.store.Heartbeat(ctx, h.journal, int(h.shard), h.state.Load())
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	trouble := err != nil && ctx.Err() == nil || now.Sub(begun) > heartbeatInterval
	if err == nil {
		// A long gap between two stored heartbeats also shows trouble. Heartbeats of other backends may still hang, so these
		// backends may seem silent for longer than alive.
		trouble = trouble || now.Sub(h.stored) > alive-heartbeatInterval
		h.stored = now
	}
	if trouble {
		h.outage = now
	}
	return err
}

// send sends heartbeats until ctx ends. A change of the state ends a heartbeat in progress and sends another one.
func (h *heartbeats) send(ctx context.Context) {
	always := func(context.Context) bool { return true }
	for ctx.Err() == nil {
		until(ctx, h.changed, always, func(ctx context.Context) {
			loop.Repeat(ctx, heartbeatInterval, h.log, "journal: sending heartbeats", func() error {
				return h.Heartbeat(ctx)
			})
		})
	}
}

// sinceOutage returns the time for which heartbeats could be stored.
func (h *heartbeats) sinceOutage() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.outage)
}

// awaits returns whether a rebuild waits for a journal, and whether the orders of the journal are being restored. While
// SQL cannot be written, the states in SQL are old. Therefore the state of a journal of this process is read from
// memory, and another journal counts as being restored for at most maxStalled after its last heartbeat.
func (w JournalWriters) awaits(shard keyspace.Shard, s journal.Status, fence int64) (waits, restores bool) {
	if w != nil && w[shard].journal == s.ID {
		state := w[shard].Restored()
		return state != fence, state == -fence
	}
	waits = s.Generation != fence && !w.silent(shard, s)
	return waits, waits && s.Restoring == fence && s.Silent <= maxStalled
}

// silent reports whether the backend of a journal has stopped: its last heartbeat is older than alive. It returns false
// if this process started, or had trouble with its own heartbeats, within the last 6 s: after an outage of SQL or a
// power failure, the heartbeats of all backends are late. This exception does not apply with OnlyCopy, because then
// this process is the only backend.
func (w JournalWriters) silent(shard keyspace.Shard, s journal.Status) bool {
	return s.Silent > alive && (w == nil || w[shard].cfg.OnlyCopy || w[shard].sinceOutage() >= alive)
}
