package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/backend/web/httpserver/servertest"
)

// An outage is logged once per interval. A request that gets 404 is not logged.
func TestOutageIsLoggedOncePerInterval(t *testing.T) {
	w := newWorld()
	w.redisErr = servertest.ErrRedisDown
	const interval = 5 * time.Second
	var log bytes.Buffer
	cfg := w.config(t)
	now := time.Now()
	cfg.Server.Now = func() time.Time { return now }
	cfg.Server.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := serve(t, cfg)
	for range 10 {
		s.Do("GET", "/v1/sales/drop", "")
		s.Do("GET", "/v1/nothing", "")
	}
	if n := strings.Count(log.String(), "10.0.0.7"); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	now = now.Add(interval)
	s.Do("GET", "/v1/sales/drop", "")
	if n := strings.Count(log.String(), "10.0.0.7"); n != 2 {
		t.Errorf("logged %d times after %v", n, interval)
	}
}
