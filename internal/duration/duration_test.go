package duration_test

import (
	"testing"
	"time"

	"sluice/internal/duration"
)

func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", time.Hour + time.Second: "1h0m1s",
		100 * time.Second: "1m40s", 20 * time.Hour: "20h", 1500 * time.Millisecond: "1.5s", -time.Hour: "-1h",
	} {
		got := duration.Text(d)
		if back, err := time.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%s is %s, want %s; %v", d, got, want, err)
		}
	}
}
