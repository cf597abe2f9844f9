package rebuild

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/recovery/journal"
)

// troubledStore is a database in which a heartbeat takes this time, and then fails or not.
type troubledStore struct {
	JournalStore

	takes time.Duration
	err   error
}

func (s *troubledStore) Heartbeat(ctx context.Context, _ string, _ int, _ int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.takes):
		return s.err
	}
}

// newWriter returns a JournalWriter with an empty journal.
func newWriter(t *testing.T, db JournalStore, onlyCopy bool) *JournalWriter {
	t.Helper()
	j, err := journal.Open(t.TempDir(), journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return NewJournalWriter(JournalWriterConfig{
		Journal: j, Restorer: NewRestorer(nil, nil, 0, nil), Store: db, OnlyCopy: onlyCopy,
	})
}

// A backend without heartbeats has stopped, unless this process has just started, or the database did not store its
// heartbeats either.
func TestSilentJournals(t *testing.T) {
	for name, c := range map[string]struct {
		runs   time.Duration // from the start of the process to the heartbeat
		store  troubledStore
		after  time.Duration // from the heartbeat to the rebuild
		silent bool

		onlyCopy bool
	}{
		"the process has just started": {0, troubledStore{takes: time.Second}, 0, false, false},
		"it has a Redis of its own":    {0, troubledStore{takes: time.Second}, 0, true, true},
		"the database works":           {alive, troubledStore{takes: time.Second}, 0, true, false},
		"it is unavailable":            {alive, troubledStore{err: errors.New("down")}, 0, false, false},
		"it is slow":                   {alive, troubledStore{takes: 3 * time.Second}, 0, false, false},
		"it was unavailable":           {alive, troubledStore{err: errors.New("down")}, alive - 1, false, false},
		"it has worked for a while":    {alive, troubledStore{err: errors.New("down")}, alive, true, false},
		"the heartbeat was cancelled":  {alive, troubledStore{takes: time.Hour}, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &troubledStore{}
				w := newWriter(t, db, c.onlyCopy)
				work := func(t time.Duration) {
					for ; t > heartbeatInterval; t -= heartbeatInterval {
						<-time.After(heartbeatInterval)
						_ = w.Heartbeat(context.Background())
					}
					<-time.After(t)
				}
				work(c.runs)
				*db = c.store
				ctx, cancel := context.WithCancel(t.Context())
				if c.store.takes == time.Hour {
					cancel()
				}
				_ = w.Heartbeat(ctx)
				cancel()
				*db = troubledStore{}
				work(c.after)
				if got := (JournalWriters{w}).silent(0, journal.Status{Silent: alive + 1}); got != c.silent {
					t.Errorf("silent: %v, want %v", got, c.silent)
				}
				if (JournalWriters{w}).silent(0, journal.Status{Silent: alive}) {
					t.Error("a backend with heartbeats is silent")
				}
			})
		})
	}
	if !JournalWriters(nil).silent(0, journal.Status{Silent: alive + 1}) {
		t.Error("a process without a journal waits for a silent one")
	}
}

// The heartbeats of all backends hang in connections to a database that was replaced. The first heartbeat that is
// stored is that of a rebuild, on a new connection.
func TestJournalsAreNotSilentAfterHangingHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, &troubledStore{}, false)
		for range 5 {
			<-time.After(heartbeatInterval)
			if err := w.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !(JournalWriters{w}).silent(0, journal.Status{Silent: alive + 1}) {
			t.Error("the heartbeats are regular, and a journal without heartbeats is not silent")
		}
		<-time.After(alive - heartbeatInterval + 1)
		if err := w.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (JournalWriters{w}).silent(0, journal.Status{Silent: alive + 1}) {
			t.Error("a backend whose heartbeats hang as those of this process is silent")
		}
	})
}
