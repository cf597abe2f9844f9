package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
)

// streamWatch samples the stream during a run: it stays within its bound, and no entry is dropped before every group
// has acknowledged it. It logs the samples as a table at the end.
type streamWatch struct {
	c       *eventChaos
	begin   time.Time
	samples []streamSample

	longest int64 // most entries
	looks   int
	full    int   // samples in which the stream was at its bound
	behind  int64 // most entries that the slowest group had not acknowledged yet
}

// streamSample is the state of the stream at one instant. Positions start at 1 and ascend by one, so the difference of
// two positions is a number of events.
type streamSample struct {
	at             time.Duration
	entries        int64
	oldest, newest int64  // positions of the first and last entry
	slowest        string // the group that is furthest behind
	next           int64  // the first position that it has not acknowledged
	written        int    // orders that are rows
}

func newStreamWatch(c *eventChaos) *streamWatch { return &streamWatch{c: c, begin: time.Now()} }

// look takes a sample, all in one transaction of Redis.
func (w *streamWatch) look() {
	t := w.c.t
	t.Helper()
	stream := keyspace.Space{}.Events()
	var entries *redis.IntCmd
	var oldest, newest *redis.XMessageSliceCmd
	var groups *redis.XInfoGroupsCmd
	pending := map[string]*redis.XPendingCmd{}
	if _, err := w.c.client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		entries = p.XLen(t.Context(), stream)
		oldest, newest = p.XRangeN(t.Context(), stream, "-", "+", 1), p.XRevRangeN(t.Context(), stream, "+", "-", 1)
		groups = p.XInfoGroups(t.Context(), stream)
		for _, name := range w.c.names {
			pending[name] = p.XPending(t.Context(), stream, name)
		}
		return nil
	}); err != nil {
		t.Fatalf("read the stream: %v", err)
	}
	s := streamSample{at: time.Since(w.begin), entries: entries.Val()}
	if len(oldest.Val()) == 1 {
		s.oldest, s.newest = events.PositionOf(oldest.Val()[0].ID), events.PositionOf(newest.Val()[0].ID)
	}
	for _, g := range groups.Val() {
		next := events.PositionOf(g.LastDeliveredID) + 1
		if p := pending[g.Name]; p != nil && p.Val().Count > 0 {
			next = events.PositionOf(p.Val().Lower)
		}
		if s.slowest == "" || next < s.next {
			s.slowest, s.next = g.Name, next
		}
	}
	if s.oldest > s.next && s.next <= s.newest {
		t.Errorf("after %v the stream begins at %d, but %s has not acknowledged %d yet", s.at, s.oldest, s.slowest, s.next)
	}
	w.looks++
	if s.entries >= streamBound {
		w.full++
	}
	w.longest, w.behind = max(w.longest, s.entries), max(w.behind, s.newest-s.next+1)
	if n := len(w.samples); n == 0 || // one a second is kept
		s.at.Truncate(time.Second) != w.samples[n-1].at.Truncate(time.Second) {
		if err := w.c.db.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&s.written); err != nil {
			t.Fatal(err)
		}
		w.samples = append(w.samples, s)
	}
}

// check reports violations and logs the samples. Beside the relay's own entries there may be some of others.
func (w *streamWatch) check(others int64) {
	if w.longest > streamBound+others {
		w.c.t.Errorf("the stream had %d entries, want at most %d", w.longest, streamBound+others)
	}
	w.c.t.Logf(
		"the stream had %d entries at most, and was full in %d of %d samples; its slowest group had at most %d events to "+
			"acknowledge\n%s",
		w.longest,
		w.full,
		w.looks,
		w.behind,
		w.table(24),
	)
}

// table returns at most this number of samples as a table, evenly spread.
func (w *streamWatch) table(rows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8s %8s %8s %8s %8s %8s  %s\n", "seconds", "orders", "newest", "entries", "oldest", "next",
		"of the slowest group")
	for i, step := 0, max(1, (len(w.samples)+rows-1)/rows); i < len(w.samples); i += step {
		s := w.samples[i]
		fmt.Fprintf(&b, "%8.0f %8d %8d %8d %8d %8d  %s\n", s.at.Seconds(), s.written, s.newest, s.entries, s.oldest, s.next,
			s.slowest)
	}
	return b.String()
}
