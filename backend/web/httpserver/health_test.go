package httpserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
)

func TestReadyListsFailingChecks(t *testing.T) {
	var sql, hung, other, degraded atomic.Bool
	errOther := errors.New("other")
	var cfg httpserver.Config
	now := atomic.Int64{}
	// each request comes a second later, after checkInterval
	cfg.Now = func() time.Time { return time.Unix(now.Add(1), 0) }
	cfg.Checks = []httpserver.Check{
		{
			Name: "redis",
			Probe: func(context.Context) error {
				switch {
				case other.Load():
					return errOther
				case degraded.Load():
					return fmt.Errorf("redis: %w", &httpserver.Degraded{Shards: []int{1, 3}})
				}
				return nil
			},
			Detail: func(err error) string {
				if errors.Is(err, errOther) {
					return "not verified"
				}
				return ""
			},
		},
		{Name: "database", Probe: func(context.Context) error {
			if sql.Load() {
				return errors.New("dial tcp 10.0.0.7: connection refused")
			}
			return nil
		}},
		{Name: "limiter", Probe: func(ctx context.Context) error {
			if hung.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}},
	}
	s := servertest.Serve(t, newServer(cfg))
	if a := s.Do("GET", "/readyz", ""); a.Status != 200 || a.Body != `{"status":"ready"}` {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	degraded.Store(true)
	if a := s.Do("GET", "/readyz", ""); a.Status != 200 || a.Body != `{"status":"ready","unavailable_shards":[1,3]}` {
		t.Errorf("without two shards: %d %s", a.Status, a.Body)
	}
	degraded.Store(false)
	sql.Store(true)
	a := s.Do("GET", "/readyz", "")
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if got := a.Field(t, "errors"); got != "[map[detail:down field:database]]" {
		t.Errorf("errors: %s", got)
	}
	sql.Store(false)
	other.Store(true)
	a = s.Do("GET", "/readyz", "")
	if got := a.Field(t, "errors"); got != "[map[detail:not verified field:redis]]" {
		t.Errorf("errors: %s", got)
	}
	other.Store(false)
	hung.Store(true)
	a = s.Do("GET", "/readyz", "")
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if got := a.Field(t, "errors"); got != "[map[detail:down field:limiter]]" {
		t.Errorf("errors: %s", got)
	}
	if a := s.Do("GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("/healthz depends on the checks: %d", a.Status)
	}
}

func TestDrainingServerIsNotReady(t *testing.T) {
	s := servertest.Serve(t, newServer(httpserver.Config{}))
	s.Server.BeginDrain()
	servertest.WantProblem(t, s.Do("GET", "/readyz", ""), 503, "temporarily-unavailable")
}
