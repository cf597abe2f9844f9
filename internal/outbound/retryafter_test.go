package outbound

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfterIsParsedAndBounded(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "90": 90 * time.Second, "-1": 0, "-7": 0, "nonsense": 0,
		"999999999": time.Hour, "4000000000": time.Hour, "99999999999999999999": 0,
		now.Add(2 * time.Minute).Format(http.TimeFormat): 2 * time.Minute,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
		now.Add(48 * time.Hour).Format(http.TimeFormat):  time.Hour,
	} {
		if got := RetryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
