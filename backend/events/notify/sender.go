package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	randv2 "math/rand/v2"
	"strings"
	"sync"
	"time"

	"sluice/backend/events"
)

// channel is where a sender sends to.
type channel interface {
	// send makes one attempt.
	send(ctx context.Context, v Delivery, m Message) error
	// lost is told of a message that fails for good. letter: a person is to see it.
	lost(ctx context.Context, v Delivery, err error) (outcome string, letter bool)
}

// sender sends the messages of one channel.
type sender struct {
	name  string
	to    channel
	slots int
	store *Store
	cfg   Config
	log   *slog.Logger
	lease string // of this process and channel
	woken chan struct{}
}

func newSender(db *Store, cfg Config, name string, slots int, to channel) *sender {
	return &sender{
		name: name, to: to, slots: slots, store: db, cfg: cfg, log: cfg.Log.With("channel", name), lease: rand.Text(), woken: make(chan struct{}, 1),
	}
}

// poke says that something was queued.
func (s *sender) poke() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *sender) run(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	free := make(chan struct{}, s.slots)
	for range s.slots {
		free <- struct{}{}
	}
	sent := make(chan Delivery, s.slots)
	var settling, sending sync.WaitGroup
	settling.Go(func() { s.settleAll(work, sent) })
	failures := 0
	for ctx.Err() == nil {
		n := s.reserve(ctx, free)
		if n == 0 {
			break
		}
		got, err := s.store.Lease(ctx, s.name, s.lease, s.cfg.Hold, n)
		for range n - len(got) {
			free <- struct{}{}
		}
		for _, v := range got {
			sending.Go(func() {
				defer func() { free <- struct{}{} }()
				if s.attempt(work, v) {
					sent <- v
				}
			})
		}
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				s.log.Warn("pushes cannot be read; trying again", "err", err)
			}
			failures++
		} else if failures > 0 && err == nil {
			s.log.Info("pushes are read again")
			failures = 0
		}
		if len(got) < n {
			s.rest(ctx)
		}
	}
	timer := time.AfterFunc(s.cfg.Drain, stop)
	sending.Wait()
	close(sent)
	settling.Wait()
	timer.Stop()
}

// reserve waits for a free slot and takes all there are; 0 when ctx ends.
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

func (s *sender) rest(ctx context.Context) {
	timer := time.NewTimer(s.cfg.Poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.woken:
	case <-timer.C:
	}
}

// attempt tries to send, and writes down what became of a message that was not sent. sent is true when it is to be settled with others.
func (s *sender) attempt(ctx context.Context, v Delivery) (sent bool) {
	e, err := events.Decode(v.Body)
	switch {
	case err != nil:
	case v.Attempts > s.cfg.MaxAttempts: // nobody has said why
		err = fmt.Errorf("%d processes died over it", v.Attempts-1)
	default:
		err = s.send(ctx, v, messageOf(e))
	}
	var wait *waitError
	switch {
	case err == nil:
		s.cfg.Metrics.Pushed(s.name, "sent")
		return true
	case ctx.Err() != nil: // a stop has ended it
		return s.insist(context.WithoutCancel(ctx), func(ctx context.Context) error { return s.store.Delay(ctx, s.lease, v, 0) })
	case errors.Is(err, ErrPermanent), errors.Is(err, errGone), v.Attempts >= s.cfg.MaxAttempts:
		return s.fail(ctx, v, e, err)
	}
	after := s.backoff(v.Attempts)
	if errors.As(err, &wait) {
		after = max(after, wait.after)
	}
	s.cfg.Metrics.Pushed(s.name, "failed")
	s.log.Debug("a push failed and is tried again", "event", v.EventID, "attempts", v.Attempts, "after", after, "err", err)
	s.insist(ctx, func(ctx context.Context) error { return s.store.Delay(ctx, s.lease, v, after) })
	return false
}

// send makes an attempt, with its time bounded and its panics caught.
func (s *sender) send(ctx context.Context, v Delivery, m Message) (err error) {
	ctx, cancel := context.WithTimeout(ctx, min(sendTimeout, s.cfg.Hold/2))
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the adapter panicked: %v", p)
		}
	}()
	return s.to.send(ctx, v, m)
}

// fail ends a message that cannot be sent.
func (s *sender) fail(ctx context.Context, v Delivery, e events.Event, why error) (sent bool) {
	outcome, wanted := s.to.lost(ctx, v, why)
	s.cfg.Metrics.Pushed(s.name, outcome)
	if !wanted {
		s.log.Debug("a push is given up", "event", v.EventID, "attempts", v.Attempts, "outcome", outcome, "err", why)
		return true
	}
	e.ID = letterID(v.EventID, s.name)
	letter := &events.DeadLetter{Group: Group, EventID: e.ID, Position: e.Position, Body: e.Encode(), Reason: s.name + ": " + reason(why), Deliveries: int64(v.Attempts)}
	s.insist(ctx, func(ctx context.Context) error {
		return s.store.Settle(ctx, s.lease, []Delivery{v}, letter)
	})
	s.log.Warn("a push is dead", "event", v.EventID, "attempts", v.Attempts, "reason", letter.Reason)
	return false
}

// settleAll writes down what was sent, as much at once as has come together.
func (s *sender) settleAll(ctx context.Context, sent <-chan Delivery) {
	for v := range sent {
		batch := []Delivery{v}
		for more := true; more && len(batch) < s.slots; {
			select {
			case v, ok := <-sent:
				if more = ok; ok {
					batch = append(batch, v)
				}
			default:
				more = false
			}
		}
		s.insist(context.WithoutCancel(ctx), func(ctx context.Context) error { return s.store.Settle(ctx, s.lease, batch, nil) })
	}
}

// insist tries until it is written or the lease is over; then somebody sends the message again. It returns false, for attempt.
func (s *sender) insist(ctx context.Context, write func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Hold)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := write(ctx)
		if err == nil {
			return false
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			s.log.Warn("what became of a push cannot be kept; it may be sent again", "err", err)
			return false
		case <-timer.C:
		}
	}
}

// backoff doubles with each attempt, up to 128 times the first wait, and is spread over its upper half.
func (s *sender) backoff(attempts int) time.Duration {
	wait := s.cfg.Backoff << min(max(attempts-1, 0), 7)
	return wait/2 + randv2.N(wait/2+1)
}

const maxReason = 300 // bytes

// reason is an error as one line.
func reason(err error) string {
	text := strings.Join(strings.Fields(plain(err.Error())), " ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}

// adapterChannel is an adapter as a channel: what it cannot send is a dead letter.
type adapterChannel struct{ Adapter }

func (c adapterChannel) send(ctx context.Context, _ Delivery, m Message) error {
	return c.Send(ctx, m)
}

func (c adapterChannel) lost(context.Context, Delivery, error) (string, bool) {
	return "dead", true
}

// webChannel is Web Push as a channel. Its endpoints are of buyers' choosing, so what fails there is no operator's business: no dead letters.
type webChannel struct {
	web     webPush
	store   *Store
	metrics Metrics
}

func (c *webChannel) send(ctx context.Context, v Delivery, m Message) error {
	if v.Subscription.ID == 0 {
		return errGone
	}
	err := c.web.send(ctx, v.Subscription, m)
	if err == nil {
		_ = c.store.RecordSuccess(ctx, v.Subscription.ID) // the next message tries again
	}
	return err
}

func (c *webChannel) lost(ctx context.Context, v Delivery, err error) (string, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	switch {
	case errors.Is(err, errGone):
		if v.Subscription.ID != 0 {
			_ = c.store.DeleteSubscription(ctx, v.Subscription.ID) // the next message finds it out again
		}
		return "gone", false
	case errors.Is(err, ErrPermanent):
		_ = c.store.RecordRefusal(ctx, v.Subscription.ID, maxRefusals)
		return "refused", false
	default:
		_ = c.store.RecordRefusal(ctx, v.Subscription.ID, maxRefusals)
		return "given_up", false
	}
}
