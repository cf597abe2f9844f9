package httpserver

import (
	"testing"
	"time"
)

func TestRetryAfterIsNeverTooShortAndSpreads(t *testing.T) {
	jitter := 0.0
	s := New(Config{Jitter: func() float64 { return jitter }})
	for _, row := range []struct {
		wait   time.Duration
		jitter float64
		want   string
	}{
		{0, 0, "1"}, {-time.Second, 0, "1"}, {time.Millisecond, 0, "1"}, {time.Second, 0, "1"},
		{1001 * time.Millisecond, 0, "2"}, {10 * time.Second, 0, "10"},
		{time.Second, 0.999, "3"}, {10 * time.Second, 0.999, "13"}, {100 * time.Second, 0.5, "111"},
	} {
		if jitter = row.jitter; s.RetryAfter(row.wait) != row.want {
			t.Errorf("wait %v, jitter %v: %s, want %s", row.wait, row.jitter, s.RetryAfter(row.wait), row.want)
		}
	}
}
