// Package duration formats durations for people and for JSON.
package duration

import (
	"strings"
	"time"
)

// Text returns d as time.Duration.String does, without trailing zero units: 24h instead of 24h0m0s. time.ParseDuration
// reads it.
func Text(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
