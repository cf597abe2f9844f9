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

// result is the outcome of an attempt.
type result struct {
	Delivery
	settled  bool          // it was sent, or no attempt can succeed; otherwise it is due again after a wait
	after    time.Duration // the wait
	attempts int           // without one that was interrupted by a stop
}

// attempt makes one attempt to send a message.
func (s *Service) attempt(ctx context.Context, v Delivery) result {
	e, err := events.Decode(v.Body)
	switch {
	case err != nil:
	case v.Attempts > s.cfg.MaxAttempts: // no process has recorded a result
		err = fmt.Errorf("%d processes ended during an attempt", v.Attempts-1)
	default:
		err = s.send(ctx, v, e)
	}
	switch {
	case err == nil:
		s.attempts.WithLabelValues(outcomeSent).Inc()
		return result{Delivery: v, settled: true}
	case ctx.Err() != nil:
		return result{Delivery: v, attempts: v.Attempts - 1}
	case errors.Is(err, events.ErrPermanent), errors.Is(err, errGone), v.Attempts >= s.cfg.MaxAttempts:
		s.drop(ctx, v, err)
		return result{Delivery: v, settled: true}
	}
	after := s.backoff(v.Attempts)
	if wait, ok := errors.AsType[*waitError](err); ok {
		after = max(after, wait.after)
	}
	s.attempts.WithLabelValues(outcomeFailed).Inc()
	s.cfg.Log.Debug("notification failed; retrying",
		"event", v.EventID, "attempts", v.Attempts, "after", after, "err", err)
	return result{Delivery: v, after: after, attempts: v.Attempts}
}

// send makes one attempt within its time limit. It returns panics as errors.
func (s *Service) send(ctx context.Context, v Delivery, e events.Event) (err error) {
	ctx, cancel := context.WithTimeout(ctx, min(sendTimeout, s.cfg.Hold/2))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if v.Subscription.ID == 0 {
		return errGone
	}
	if err := s.cfg.Web.send(ctx, v.Subscription, e); err != nil {
		return err
	}
	_ = s.store.RecordSuccess(ctx, v.Subscription.ID) // after an error, the next message records it
	return nil
}

// drop counts a message that cannot be sent, and records the failure for its subscription.
func (s *Service) drop(ctx context.Context, v Delivery, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	var outcome string
	var err error
	if errors.Is(why, errGone) {
		outcome = outcomeGone
		err = s.store.DeleteSubscription(ctx, v.Subscription.ID)
	} else {
		outcome = outcomeGivenUp
		if errors.Is(why, events.ErrPermanent) {
			outcome = outcomeRefused
		}
		err = s.store.RecordRefusal(ctx, v.Subscription.ID, maxRefusals)
	}
	if err != nil { // the next message to the subscription fails in the same way
		s.cfg.Log.Debug("failure of a subscription cannot be recorded", "subscription", v.SubscriptionID, "err", err)
	}
	s.attempts.WithLabelValues(outcome).Inc()
	s.cfg.Log.Debug("notification dropped", "event", v.EventID, "attempts", v.Attempts, "outcome", outcome, "err", why)
}

// record retries until the results are stored or the leases have expired; then the messages may be sent again.
func (s *Service) record(work context.Context, results []result) {
	loop.Record(work, s.cfg.Hold, s.cfg.Log, "storing results of notifications", func(ctx context.Context) error {
		var settled []Delivery
		for _, r := range results {
			if r.settled {
				settled = append(settled, r.Delivery)
			} else if err := s.store.Delay(ctx, s.process, r.Delivery, r.attempts, r.after); err != nil {
				return err
			}
		}
		return s.store.Settle(ctx, s.process, settled)
	})
}

// backoff doubles with each attempt up to 128 times Config.Backoff. It is random within its upper half.
func (s *Service) backoff(attempts int) time.Duration {
	wait := s.cfg.Backoff << min(max(attempts-1, 0), 7)
	return wait/2 + rand.N(wait/2+1)
}
