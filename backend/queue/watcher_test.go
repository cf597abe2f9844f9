package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/queue"
	"sluice/test/testenv"
)

// leases is a Reclaimer. Its calls return the numbers in found, one after the other, and err.
type leases struct {
	found []int
	err   error
	calls int
}

func (l *leases) Reclaim(_ context.Context, limit int) (int, error) {
	l.calls++
	if len(l.found) == 0 {
		return 0, l.err
	}
	n := l.found[0]
	l.found = l.found[1:]
	return min(n, limit), l.err
}

func TestWatcherRoundEndsWhenNoLeaseIsExpired(t *testing.T) {
	q := &leases{found: []int{100, 100, 3, 100}}
	n, err := (&queue.Watcher{Queue: q}).RunOnce(t.Context())
	if n != 203 || err != nil || q.calls != 3 {
		t.Errorf("%d leases in %d calls, %v; want 203 in 3", n, q.calls, err)
	}
}

func TestWatcherRoundStopsAtAnError(t *testing.T) {
	q := &leases{found: []int{100, 100}, err: errors.New("down")}
	if n, err := (&queue.Watcher{Queue: q}).RunOnce(t.Context()); n != 100 || err == nil {
		t.Errorf("%d leases, %v", n, err)
	}
}

func TestWatcherContinuesAfterAnOutageAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &leases{err: errors.New("down")}
		var log testenv.Buffer
		stop := testenv.Run(t, (&queue.Watcher{Queue: q, Log: slog.New(slog.NewTextHandler(&log, nil))}).Run)
		time.Sleep(100 * time.Second) // by the fake clock
		stop()
		if q.calls < 45 || q.calls > 110 {
			t.Errorf("%d rounds in 100 seconds", q.calls)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines were logged, want one for the outage:\n%s", n, &log)
		}
	})
}
