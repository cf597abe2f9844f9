package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

var space keyspace.Space

// stage is a Redis server with the event stream, and processes with open pages.
type stage struct {
	*testing.T
	redis    *miniredis.Miniredis
	raw      redisconn.Client
	position int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	s := &stage{T: t, redis: miniredis.RunT(t)}
	s.raw = s.client()
	return s
}

func (s *stage) client() redisconn.Client {
	c, err := redisconn.Open("redis://" + s.redis.Addr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// process runs a Live until the test ends.
func (s *stage) process(cfg notify.LiveConfig) *notify.Live {
	cfg.Log = quiet
	l := notify.NewLive(s.client(), space, cfg)
	testenv.Run(s, l.Run)
	return l
}

// publish appends an event to the stream, as the relay does.
func (s *stage) publish(buyer string, e events.Event) events.Event {
	s.Helper()
	s.position++
	e.Buyer = buyer
	s.add(s.position, e.Encode())
	return e
}

func (s *stage) add(position int, body string) {
	s.Helper()
	args := &redis.XAddArgs{Stream: space.Events(), ID: fmt.Sprintf("%d-0", position), Values: []string{"event", body}}
	if err := s.raw.XAdd(context.Background(), args).Err(); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) open(l *notify.Live, buyer, after string) (p *notify.Page, missed []string, known bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p, batch, known, err := l.Open(ctx, buyer, after)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range batch {
		missed = append(missed, e.ID)
	}
	return p, missed, known
}

// next returns the id of the next event of a page, or "cut".
func (s *stage) next(p *notify.Page) string {
	s.Helper()
	select {
	case e := <-p.Events():
		return e.ID
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case e := <-p.Events():
		return e.ID
	case <-p.Cut():
		return "cut"
	case <-timer.C:
		s.Fatal("the page receives no event")
	}
	return ""
}

func TestPagesOfEveryProcessReceiveTheirBuyersEvents(t *testing.T) {
	s := newStage(t)
	s.publish("ann", created(1)) // before a page is open
	one, two := s.process(notify.LiveConfig{}), s.process(notify.LiveConfig{})
	a1, _, known := s.open(one, "ann", "")
	a2, _, _ := s.open(two, "ann", "")
	b, _, _ := s.open(two, "bob", "")
	if known {
		t.Error("a page without Last-Event-ID must read the state from SQL")
	}
	s.publish("bob", created(2))
	paid := s.publish("ann", eventOf(1, events.Paid, sale.StatusPaid))
	s.add(s.position+1, `{"v":99,"id":"x"}`) // of a later version: skipped, and not a gap
	s.position++
	s.publish("ann", eventOf(1, "order.shipped", "shipped"))
	last := s.publish("ann", eventOf(1, events.Cancelled, sale.StatusCancelled))
	for _, p := range []*notify.Page{a1, a2} {
		if x, y := s.next(p), s.next(p); x != paid.ID || y != last.ID {
			t.Errorf("ann's page got %s, %s; want %s, %s", x, y, paid.ID, last.ID)
		}
	}
	if got := s.next(b); got != created(2).ID {
		t.Errorf("bob's page got %s, want %s", got, created(2).ID)
	}
	for _, p := range []*notify.Page{a1, a2, b} {
		select {
		case e := <-p.Events():
			t.Errorf("unexpected event %+v", e)
		default:
		}
		p.Close()
	}
}

func TestReconnectedPageReceivesMissedEvents(t *testing.T) {
	s := newStage(t)
	first := s.publish("ann", created(1))
	s.publish("bob", created(2))
	second := s.publish("ann", eventOf(1, events.Paid, sale.StatusPaid))
	l := s.process(notify.LiveConfig{})
	for after, want := range map[string][]string{first.ID: {second.ID}, second.ID: nil} {
		p, missed, known := s.open(l, "ann", after)
		if !known || !slices.Equal(missed, want) {
			t.Errorf("after %s: %v, known %v; want %v", after, missed, known, want)
		}
		p.Close()
	}
	for _, after := range []string{"", "7.created", created(2).ID, "\x00"} { // unknown, or another buyer's
		p, missed, known := s.open(l, "ann", after)
		if known || len(missed) != 0 {
			t.Errorf("after %q: %v, known %v", after, missed, known)
		}
		p.Close()
	}
}

func TestPagesAreBounded(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{Pages: 50, BuyerPages: 3})
	var open []*notify.Page
	for range 3 {
		p, _, _ := s.open(l, "ann", "")
		open = append(open, p)
	}
	if _, _, _, err := l.Open(t.Context(), "ann", ""); !errors.Is(err, notify.ErrTooMany) {
		t.Fatalf("fourth page of a buyer: %v, want ErrTooMany", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	full := 0
	for n := range 100 {
		wg.Go(func() {
			p, _, _, err := l.Open(context.Background(), fmt.Sprintf("b%d", n), "")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, notify.ErrFull):
				full++
			case err != nil:
				t.Error(err)
			default:
				open = append(open, p)
			}
		})
	}
	wg.Wait()
	if len(open) != 50 || full != 53 {
		t.Fatalf("%d pages are open, %d rejected; want 50 and 53", len(open), full)
	}
	for _, p := range open {
		p.Close()
		p.Close()
	}
	p, _, _ := s.open(l, "ann", "")
	p.Close()
}

func TestSlowPageIsDisconnectedAndDelaysNoOther(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{})
	slow, _, _ := s.open(l, "ann", "")
	quick, _, _ := s.open(l, "bob", "")
	for n := range 100 {
		s.publish("ann", created(n+1))
	}
	last := s.publish("bob", created(200))
	if got := s.next(quick); got != last.ID {
		t.Errorf("got %s, want %s", got, last.ID)
	}
	select {
	case <-slow.Cut():
	default:
		t.Error("the page that reads nothing is still connected")
	}
}

// While pages are open, a mark in Redis makes the relay keep events even if there is no group. The process sets the
// mark before it first reads the stream, and the mark expires after the process has ended.
func TestOpenPagesAreMarked(t *testing.T) {
	s := newStage(t)
	p, _, _ := s.open(s.process(notify.LiveConfig{}), "ann", "")
	defer p.Close()
	life := s.redis.TTL(space.EventPages())
	if life <= 0 {
		t.Fatalf("the mark of open pages has a lifetime of %v", life)
	}
	for range 3 { // the process marks again
		s.redis.Del(space.EventPages())
		testenv.Eventually(t, patience, "the pages are marked again", func() bool {
			return s.redis.Exists(space.EventPages())
		})
	}
}

// Events that were trimmed before they were read, or lost with Redis, leave a gap in the positions.
func TestGapDisconnectsPagesAndDropsRecentEvents(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{})
	known := s.publish("ann", created(1))
	p, _, _ := s.open(l, "ann", "")
	s.position += 5
	s.publish("bob", created(2))
	if got := s.next(p); got != "cut" {
		t.Errorf("got %s", got)
	}
	p.Close()
	if _, _, ok := s.open(l, "ann", known.ID); ok {
		t.Error("an event before the gap is still known")
	}
}

func TestEmptiedStreamRepeatsNoEvent(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{})
	p, _, _ := s.open(l, "ann", "")
	first := s.publish("ann", created(1))
	if got := s.next(p); got != first.ID {
		t.Fatal(got)
	}
	s.redis.FlushAll()
	s.position = 0
	s.publish("ann", created(1)) // the relay appends it again
	second := s.publish("ann", eventOf(1, events.Paid, sale.StatusPaid))
	if got := s.next(p); got != second.ID {
		t.Errorf("got %s", got)
	}
}

func TestPagesAreDisconnectedAndRejectedWithoutRedis(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{Lost: 50 * time.Millisecond})
	p, _, _ := s.open(l, "ann", "")
	s.redis.SetError("LOADING Redis is loading")
	if got := s.next(p); got != "cut" {
		t.Errorf("got %s", got)
	}
	p.Close()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, _, err := l.Open(short, "ann", ""); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("opened without Redis: %v", err)
	}
	s.redis.SetError("")
	p, _, _ = s.open(l, "ann", "")
	e := s.publish("ann", created(1))
	if got := s.next(p); got != e.ID {
		t.Errorf("got %s", got)
	}
}

func TestStreamIsReadOnlyWhilePagesAreOpen(t *testing.T) {
	s := newStage(t)
	l := s.process(notify.LiveConfig{Linger: 20 * time.Millisecond})
	reads := func() int { return s.redis.CommandCount() }
	if n := reads(); n > 5 { // connecting
		t.Errorf("%d commands before a page is open", n)
	}
	for range 3 {
		p, _, _ := s.open(l, "ann", "")
		e := s.publish("ann", created(s.position+1))
		if got := s.next(p); got != e.ID {
			t.Errorf("got %s", got)
		}
		p.Close()
		testenv.Eventually(t, patience, "the stream is no longer read", func() bool { return !l.Reading() })
	}
}
