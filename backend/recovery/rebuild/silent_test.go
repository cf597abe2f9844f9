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

// A rebuild uses the state of a journal of this process, and reports of others, which are old while the database cannot
// be written.
func TestRebuildAwaitsJournals(t *testing.T) {
	const fence = 5
	w := newWriter(t, &troubledStore{}, false) // it has just started, so no journal is silent
	own := w.journal
	for name, c := range map[string]struct {
		state           int64 // of the journal of this process
		inSQL           journal.Status
		waits, restores bool
	}{
		"of a former generation":         {0, journal.Status{ID: "other", Generation: fence - 1}, true, false},
		"restored":                       {0, journal.Status{ID: "other", Generation: fence}, false, false},
		"being restored":                 {0, journal.Status{ID: "other", Restoring: fence, Silent: maxStalled}, true, true},
		"was being restored":             {0, journal.Status{ID: "other", Restoring: fence, Silent: time.Hour}, true, false},
		"of a former rebuild":            {0, journal.Status{ID: "other", Restoring: fence - 1}, true, false},
		"own, restored and not reported": {fence, journal.Status{ID: own, Restoring: fence}, false, false},
		"own, being restored":            {-fence, journal.Status{ID: own, Silent: maxStalled + 1}, true, true},
		"own, with a file error":         {0, journal.Status{ID: own, Restoring: fence}, true, false},
		"own, of a former generation":    {1 - fence, journal.Status{ID: own, Generation: fence - 1}, true, false},
	} {
		w.report(c.state)
		if waits, restores := (JournalWriters{w}).awaits(0, c.inSQL, fence); waits != c.waits || restores != c.restores {
			t.Errorf("%s: waits %t, restores %t", name, waits, restores)
		}
	}
	for _, silent := range []time.Duration{0, alive + 1} {
		waits, _ := JournalWriters(nil).awaits(0, journal.Status{ID: own, Restoring: fence, Silent: silent}, fence)
		if waits != (silent == 0) {
			t.Errorf("a process without a journal, %v after a heartbeat: waits %t", silent, waits)
		}
	}
}
