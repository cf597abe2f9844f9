package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
)

// A process waits at every step for a database that is unavailable, returns its errors, and exits when it is stopped.
func TestUnavailableDatabaseIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tries, once := 0, false
		try := func(answers ...error) error {
			tries = 0
			return awaitDatabase(ctx, slog.New(slog.DiscardHandler), once, func() error {
				tries++
				return answers[min(tries, len(answers))-1]
			})
		}
		away, wrong := fmt.Errorf("order: shards: %w: connection reset", sale.ErrUnavailable), errors.New(
			"the database has no shards",
		)
		if err := try(away, away, away, nil); err != nil || tries != 4 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if err := try(away, wrong); !errors.Is(err, wrong) || tries != 2 {
			t.Errorf("%v after %d tries", err, tries)
		}
		once = true
		if err := try(away, nil); !errors.Is(err, sale.ErrUnavailable) || tries != 1 {
			t.Errorf("a command that does not wait: %v after %d tries", err, tries)
		}
		once = false
		time.AfterFunc(time.Minute, cancel)
		if err := try(away); err == nil || tries < 10 || tries > 20 {
			t.Errorf("%v after %d tries within a minute", err, tries)
		}
	})
}
