package outbound

import (
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter bounds how long an endpoint can delay the next request.
const maxRetryAfter = time.Hour

// RetryAfter returns the delay that a Retry-After header requests, in seconds or as a date: at most an hour; 0 if the
// header is missing, malformed, or in the past.
func RetryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
