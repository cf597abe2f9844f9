package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Schedule is how long a delivery waits after its first, second, ... attempt that failed. After one more it is given
// up: eleven attempts in about 29 hours.
var Schedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
}

// maxRetryAfter bounds how long an endpoint can make itself wait.
const maxRetryAfter = time.Hour

// answer is what came of a request: an error, or a status.
type answer struct {
	err        error
	status     int
	retryAfter string // the header
	body       string // its beginning
	took       time.Duration
}

// judge decides the next state of a delivery. It is a pure function: jitter, in [0, 1), extends a delay by up to a
// fifth, so that deliveries that failed together are spread.
func judge(d Delivery, a answer, schedule []time.Duration, now time.Time, jitter float64) Result {
	r := Result{Delivery: d, Status: a.status, Took: a.took, Answer: a.body}
	switch {
	case a.err == nil && a.status >= 200 && a.status <= 299:
		r.State = DeliveryDelivered
		return r
	case a.err != nil:
		r.Error = oneLine(a.err.Error())
	case a.status >= 300 && a.status <= 399:
		r.Error = fmt.Sprintf("it answered %d: redirects are not followed, change the URL", a.status)
	default:
		r.Error = fmt.Sprintf("it answered %d", a.status)
	}
	r.State = DeliveryFailed
	r.Gone = a.err == nil && a.status == http.StatusGone
	if r.Gone || d.Type == TypePing || d.Attempts >= len(schedule) {
		return r
	}
	r.State = DeliveryWaiting
	r.Wait = schedule[d.Attempts]
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		r.Hold = retryAfter(a.retryAfter, now)
		r.Wait = max(r.Wait, r.Hold)
	}
	r.Wait += time.Duration(jitter * float64(r.Wait/5))
	return r
}

// retryAfter reads the header, in seconds or as a date; 0 if there is none that makes sense.
func retryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
