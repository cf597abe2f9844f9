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

// judge decides the next state of a delivery. r has its Delivery and, unless err is not nil, the response: Status,
// Answer, and the Retry-After as Hold. It is a pure function: jitter, in [0, 1), extends a delay by up to a fifth, so
// that deliveries that failed together are spread.
func judge(r Result, err error, schedule []time.Duration, jitter float64) Result {
	if r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
		r.Hold = 0
	}
	switch {
	case err == nil && r.Status >= 200 && r.Status <= 299:
		r.State = DeliveryDelivered
		return r
	case err != nil:
		r.Error = events.OneLine(err)
	case r.Status >= 300 && r.Status <= 399:
		r.Error = fmt.Sprintf("the endpoint returned %d: redirects are not followed, change the URL", r.Status)
	default:
		r.Error = fmt.Sprintf("the endpoint returned %d", r.Status)
	}
	r.State = DeliveryFailed
	r.Gone = r.Status == http.StatusGone
	attempts := r.Delivery.Attempts
	if r.Gone || r.Delivery.Type == TypePing || attempts >= len(schedule) {
		return r
	}
	r.State = DeliveryWaiting
	r.Wait = max(schedule[attempts], r.Hold)
	r.Wait += time.Duration(jitter * float64(r.Wait/5))
	return r
}
