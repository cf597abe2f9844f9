package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRetryAfterIsNeverTooShortAndSpreads(t *testing.T) {
	jitter := 0.0
	a := &App{jitter: func() float64 { return jitter }}
	for _, row := range []struct {
		wait   time.Duration
		jitter float64
		want   string
	}{
		{0, 0, "1"}, {-time.Second, 0, "1"}, {time.Millisecond, 0, "1"}, {time.Second, 0, "1"}, {1001 * time.Millisecond, 0, "2"}, {10 * time.Second, 0, "10"},
		{time.Second, 0.999, "3"}, {10 * time.Second, 0.999, "13"}, {100 * time.Second, 0.5, "111"},
	} {
		if jitter = row.jitter; a.retryAfter(row.wait) != row.want {
			t.Errorf("wait %v, jitter %v: %s, want %s", row.wait, row.jitter, a.retryAfter(row.wait), row.want)
		}
	}
}

// An outage is told at once and then once in a while, however many purchases it meets; refusals of buyers are not news.
func TestAnOutageIsLoggedOnceInAWhile(t *testing.T) {
	w := newWorld()
	w.redisErr = errRedisDown
	var log bytes.Buffer
	cfg := w.config(t)
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	app, err := NewPublic(cfg)
	s := serve(t, app, err)
	for range 10 {
		s.ask("GET", "/v1/sales/drop", "")
		s.ask("GET", "/v1/nothing", "")
	}
	if n := strings.Count(log.String(), "10.0.0.7"); n != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	now = now.Add(outageEvery)
	s.ask("GET", "/v1/sales/drop", "")
	if n := strings.Count(log.String(), "10.0.0.7"); n != 2 {
		t.Errorf("logged %d times after %v", n, outageEvery)
	}
}
