package webhook

import (
	"fmt"
	"net/http"
	"time"

	"sluice/backend/events"
)

// defaultSchedule is the delay of a delivery after its first, second, ... failed attempt. It is given up after one more
// failed attempt: after eleven attempts in 29 to 35 hours.
var defaultSchedule = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
}

// answer is the outcome of a request: an error, or a response.
type answer struct {
	err        error
	status     int
	retryAfter time.Duration // requested by the endpoint; 0: none
	body       string        // its beginning
	took       time.Duration
}

// judge decides the next state of a delivery. It is a pure function: jitter, in [0, 1), extends a delay by up to a
// fifth, so that deliveries that failed together are spread.
func judge(d Delivery, a answer, schedule []time.Duration, jitter float64) Result {
	r := Result{Delivery: d, Status: a.status, Took: a.took, Answer: a.body}
	switch {
	case a.err == nil && a.status >= 200 && a.status <= 299:
		r.State = DeliveryDelivered
		return r
	case a.err != nil:
		r.Error = events.OneLine(a.err)
	case a.status >= 300 && a.status <= 399:
		r.Error = fmt.Sprintf("the endpoint returned %d: redirects are not followed, change the URL", a.status)
	default:
		r.Error = fmt.Sprintf("the endpoint returned %d", a.status)
	}
	r.State = DeliveryFailed
	r.Gone = a.err == nil && a.status == http.StatusGone
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		r.Hold = a.retryAfter
	}
	if r.Gone || d.Type == TypePing || d.Attempts >= len(schedule) {
		return r
	}
	r.State = DeliveryWaiting
	r.Wait = max(schedule[d.Attempts], r.Hold)
	r.Wait += time.Duration(jitter * float64(r.Wait/5))
	return r
}
