package api

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestReadyTellsWhatIsDown(t *testing.T) {
	w := newWorld()
	var sql, hung atomic.Bool
	cfg := w.config(t)
	now := atomic.Int64{}
	cfg.Now = func() time.Time { return time.Unix(now.Add(1), 0) } // each request a second later: nothing is remembered
	cfg.Checks = []Check{
		{"redis", func(context.Context) error { return nil }},
		{"database", func(context.Context) error {
			if sql.Load() {
				return errors.New("dial tcp 10.0.0.7: connection refused")
			}
			return nil
		}},
		{"limiter", func(ctx context.Context) error {
			if hung.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}},
	}
	app, err := NewPublic(cfg)
	s := serve(t, app, err)
	if a := s.ask("GET", "/readyz", ""); a.status != 200 || a.body != `{"status":"ready"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	sql.Store(true)
	a := s.ask("GET", "/readyz", "")
	wantProblem(t, a, 503, "temporarily-unavailable")
	if got := a.field(t, "errors"); got != "[map[detail:down field:database]]" {
		t.Errorf("errors: %s", got)
	}
	sql.Store(false)
	hung.Store(true)
	a = s.ask("GET", "/readyz", "")
	wantProblem(t, a, 503, "temporarily-unavailable")
	if got := a.field(t, "errors"); got != "[map[detail:down field:limiter]]" {
		t.Errorf("errors: %s", got)
	}
	if a := s.ask("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("healthz depends on others: %d", a.status)
	}
}

func TestReadyIsNotAskedAgainWithinAMoment(t *testing.T) {
	asked := 0
	r := &readiness{checks: []Check{{"redis", func(context.Context) error { asked++; return errors.New("down") }}}}
	now := time.Unix(100, 0)
	for range 5 {
		if down := r.down(now); len(down) != 1 {
			t.Fatalf("down: %v", down)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	r.down(now.Add(checkEvery))
	if asked != 2 {
		t.Errorf("asked %d times after %v", asked, checkEvery)
	}
}

func TestDrainingProcessIsNotReady(t *testing.T) {
	s := newWorld().serve(t)
	s.app.stop()
	wantProblem(t, s.ask("GET", "/readyz", ""), 503, "temporarily-unavailable")
	wantProblem(t, s.ask("GET", "/v1/sales/drop/events", ""), 503, "temporarily-unavailable")
}
