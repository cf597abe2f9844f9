package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"sync"
	"time"

	"sluice/backend/events"
)

// sender leases queued messages and sends them by Web Push. Buyers choose the endpoints, so a message that cannot be
// sent is counted and dropped; it does not become a dead letter.
type sender struct {
	store   *Store
	cfg     Config
	web     webPush
	log     *slog.Logger
	process string // owner of this process's leases
	woken   chan struct{}
}

func newSender(db *Store, cfg Config) *sender {
	return &sender{
		store: db, cfg: cfg, web: webPush{*cfg.Web}, log: cfg.Log, process: rand.Text(), woken: make(chan struct{}, 1),
	}
}

// wake ends the wait for the next poll, because messages were queued.
func (s *sender) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// run leases and sends messages until ctx ends. Running attempts then have Config.Drain to finish.
func (s *sender) run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	free := make(chan struct{}, concurrency)
	for range concurrency {
		free <- struct{}{}
	}
	done := make(chan Delivery, concurrency)
	var settling, sending sync.WaitGroup
	settling.Go(func() { s.settleAll(work, done) })
	failures := 0
	for ctx.Err() == nil {
		n := s.reserve(ctx, free)
		if n == 0 {
			break
		}
		leased, err := s.store.Lease(ctx, s.process, s.cfg.Hold, n)
		for range n - len(leased) {
			free <- struct{}{}
		}
		for _, v := range leased {
			sending.Go(func() {
				defer func() { free <- struct{}{} }()
				if s.attempt(work, v) {
					done <- v
				}
			})
		}
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				s.log.Warn("notifications cannot be leased; retrying", "err", err)
			}
			failures++
		} else if failures > 0 && err == nil {
			s.log.Info("notifications are leased again")
			failures = 0
		}
		if len(leased) < n {
			s.rest(ctx)
		}
	}
	timer := time.AfterFunc(s.cfg.Drain, stop)
	sending.Wait()
	close(done)
	settling.Wait()
	timer.Stop()
}

// reserve waits for a free slot, takes all free slots and returns their number; 0 when ctx ends.
func (s *sender) reserve(ctx context.Context, free chan struct{}) int {
	select {
	case <-ctx.Done():
		return 0
	case <-free:
	}
	for n := 1; ; n++ {
		select {
		case <-free:
		default:
			return n
		}
	}
}

// rest waits for wake or the next poll.
func (s *sender) rest(ctx context.Context) {
	timer := time.NewTimer(s.cfg.Poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.woken:
	case <-timer.C:
	}
}

// attempt makes one attempt and returns true if the message is to be settled: it was sent, or no attempt can succeed.
// Otherwise attempt has released it for a later attempt.
func (s *sender) attempt(ctx context.Context, v Delivery) (settle bool) {
	e, err := events.Decode(v.Body)
	switch {
	case err != nil:
	case v.Attempts > s.cfg.MaxAttempts: // no process has recorded a result
		err = fmt.Errorf("%d processes ended during an attempt", v.Attempts-1)
	default:
		err = s.send(ctx, v, messageOf(e))
	}
	var wait *waitError
	switch {
	case err == nil:
		s.cfg.Metrics.Attempted(outcomeSent)
		return true
	case ctx.Err() != nil: // interrupted by a stop
		s.record(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return s.store.Delay(ctx, s.process, v, 0)
		})
		return false
	case errors.Is(err, events.ErrPermanent), errors.Is(err, errGone), v.Attempts >= s.cfg.MaxAttempts:
		s.drop(ctx, v, err)
		return true
	}
	after := s.backoff(v.Attempts)
	if errors.As(err, &wait) {
		after = max(after, wait.after)
	}
	s.cfg.Metrics.Attempted(outcomeFailed)
	s.log.Debug("notification failed; retrying", "event", v.EventID, "attempts", v.Attempts, "after", after, "err", err)
	s.record(ctx, func(ctx context.Context) error { return s.store.Delay(ctx, s.process, v, after) })
	return false
}

// send makes one attempt within its time limit. It returns panics as errors.
func (s *sender) send(ctx context.Context, v Delivery, m Message) (err error) {
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
	if err := s.web.send(ctx, v.Subscription, m); err != nil {
		return err
	}
	_ = s.store.RecordSuccess(ctx, v.Subscription.ID) // after an error, the next message records it
	return nil
}

// drop counts a message that cannot be sent, and records the failure for its subscription.
func (s *sender) drop(ctx context.Context, v Delivery, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	outcome := outcomeGivenUp
	var err error
	switch {
	case errors.Is(why, errGone):
		outcome = outcomeGone
		if v.Subscription.ID != 0 {
			err = s.store.DeleteSubscription(ctx, v.Subscription.ID)
		}
	case errors.Is(why, events.ErrPermanent):
		outcome = outcomeRefused
		err = s.store.RecordRefusal(ctx, v.Subscription.ID, maxRefusals)
	default:
		err = s.store.RecordRefusal(ctx, v.Subscription.ID, maxRefusals)
	}
	if err != nil { // the next message to the subscription fails in the same way
		s.log.Debug("failure of a subscription cannot be recorded", "subscription", v.SubscriptionID, "err", err)
	}
	s.cfg.Metrics.Attempted(outcome)
	s.log.Debug("notification dropped", "event", v.EventID, "attempts", v.Attempts, "outcome", outcome, "err", why)
}

// settleAll settles the messages in done in batches.
func (s *sender) settleAll(ctx context.Context, done <-chan Delivery) {
	for v := range done {
		batch := []Delivery{v}
		for more := true; more && len(batch) < concurrency; {
			select {
			case v, ok := <-done:
				if more = ok; ok {
					batch = append(batch, v)
				}
			default:
				more = false
			}
		}
		s.record(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return s.store.Settle(ctx, s.process, batch)
		})
	}
}

// record retries write until it succeeds or the lease has expired. After that, the message may be sent again.
func (s *sender) record(ctx context.Context, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Hold)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := write(ctx)
		if err == nil {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			s.log.Warn("result of a notification cannot be stored; it may be sent again", "err", err)
			return
		case <-timer.C:
		}
	}
}

// backoff doubles with each attempt up to 128 times Config.Backoff. It is random within its upper half.
func (s *sender) backoff(attempts int) time.Duration {
	wait := s.cfg.Backoff << min(max(attempts-1, 0), 7)
	return wait/2 + randv2.N(wait/2+1)
}
