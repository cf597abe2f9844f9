package notify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sluice/backend/events"
	"sluice/internal/loop"
)

// attempt makes one attempt to send a message, or releases it if its push service is busy for hostWait.
func (s *Service) attempt(ctx context.Context, v Message) Result {
	r := Result{Message: v}
	e, left, outcome, err := s.check(v)
	var retryAfter time.Duration
	if err == nil {
		var delay time.Duration
		r.slot, delay = s.hosts.acquire(ctx, v.Subscription.Endpoint, min(hostWait, s.cfg.Hold/4))
		if r.slot == nil {
			r.Outcome, r.Wait = Released, s.backoff(1)+delay
			return r
		}
		began := time.Now()
		outcome, retryAfter, err = s.send(ctx, v.Subscription, e, left, r.slot.timeout())
		r.slot.ended(time.Since(began))
	}
	if err != nil && ctx.Err() != nil { // interrupted by a stop: not a failure of the push service
		r.Outcome = Released
		return r
	}
	r.Outcome = outcome
	if outcome == Failed {
		if v.Attempts < s.cfg.MaxAttempts {
			r.Wait = max(s.backoff(v.Attempts), retryAfter)
		} else {
			r.Outcome = GivenUp
		}
	}
	if r.Outcome != Expired { // no attempt was made to send an expired message
		s.attempts.WithLabelValues(string(r.Outcome)).Inc()
	}
	s.cfg.Log.Debug("attempt to send a notification", "event", v.EventID, "attempts", v.Attempts, "outcome", r.Outcome,
		"wait", r.Wait, "err", err)
	return r
}

// check returns the event of a message and the rest of its lifetime. With an error, it returns the outcome of the
// message, which is not sent.
func (s *Service) check(v Message) (e events.Event, left time.Duration, outcome Outcome, err error) {
	if v.Subscription.ID == 0 {
		return e, 0, Gone, errors.New("the subscription was deleted")
	}
	if v.Attempts > s.cfg.MaxAttempts { // no process has recorded a result
		return e, 0, Failed, fmt.Errorf("%d processes ended during an attempt", v.Attempts-1)
	}
	if e, err = events.Decode(v.Body); err != nil {
		return e, 0, Refused, err
	}
	left = lifetime(e.Type) - max(v.LeasedAt.Sub(e.At), 0)
	if left <= 0 {
		return e, 0, Expired, errors.New("the event is too old")
	}
	return e, left, "", nil
}

// send makes one attempt, which takes at most timeout; see WebConfig.send. It returns panics as errors.
func (s *Service) send(
	ctx context.Context, to Subscription, e events.Event, ttl, timeout time.Duration,
) (outcome Outcome, retryAfter time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, s.cfg.Hold/2))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			outcome, err = Failed, fmt.Errorf("panic: %v", p)
		}
	}()
	return s.cfg.Web.send(ctx, to, e, ttl)
}

// record retries until the results are stored or the leases have expired; then the messages may be sent again.
func (s *Service) record(work context.Context, results []Result) {
	loop.Record(work, s.cfg.Hold, s.cfg.Log, "storing results of notifications", func(ctx context.Context) error {
		return s.store.RecordResults(ctx, results)
	})
	expired := 0
	for _, r := range results {
		if r.slot != nil {
			r.slot.release()
		}
		if r.Outcome == Expired {
			expired++
		}
	}
	if expired > 0 {
		s.cfg.Log.Warn("notifications dropped: their events are too old", "messages", expired)
	}
}

// backoff doubles with each attempt up to 128 times Config.Backoff. It is random within its upper half.
func (s *Service) backoff(attempts int) time.Duration {
	wait := s.cfg.Backoff << min(max(attempts-1, 0), 7)
	return wait/2 + rand.N(wait/2+1)
}
