package notify_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

func rootsOf(s *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func handle(t *testing.T, s *notify.Service, batch ...events.Event) {
	t.Helper()
	if err := s.Handle(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// One adapter hangs for good, one is down, and the others are told within their own time.
func TestAdapterThatIsDownHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	ok := newFake("ok", nil)
	down := newFake("down", func(context.Context, notify.Message, int) error { return errDown })
	ended := make(chan struct{})
	hangs := newFake("hangs", func(context.Context, notify.Message, int) error { <-ended; return errDown }) // does not even hear its context
	s, _ := service(t, db, notify.Config{Adapters: []notify.Adapter{hangs, down, ok}, MaxAttempts: 1000, Backoff: 50 * time.Millisecond})
	t.Cleanup(func() { close(ended) })
	var want []string
	for n := range 40 {
		handle(t, s, created(n+1))
		want = append(want, created(n+1).ID)
	}
	testenv.Eventually(t, patience, "all are told over the adapter that works", func() bool { return len(ok.ids()) == len(want) })
	got := ok.ids()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if len(letters(t, db)) != 0 {
		t.Error("somebody is dead too early")
	}
}

func TestEventToldAgainIsSentOnce(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	a, b := newFake("smtp", nil), newFake("ntfy", func(_ context.Context, _ notify.Message, nth int) error {
		if nth < 3 {
			return errDown
		}
		return nil
	})
	cfg := notify.Config{Adapters: []notify.Adapter{a, b}}
	s, _ := service(t, db, cfg)
	other, _ := service(t, db, cfg)
	batch := []events.Event{created(1), created(2), eventOf(1, events.Paid, sale.StatusPaid)}
	for range 3 {
		handle(t, s, batch...)
		handle(t, other, batch...)
	}
	testenv.Eventually(t, patience, "all is sent", func() bool { return waiting(t, db) == 0 })
	handle(t, s, batch...)
	for _, f := range []*fake{a, b} {
		got := f.ids()
		slices.Sort(got)
		want := []string{batch[0].ID, batch[1].ID, batch[2].ID}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s was sent %v", f.name, got)
		}
	}
	if n := waiting(t, db); n != 0 {
		t.Errorf("%d wait again", n)
	}
}

func TestDeadMessageIsALetterOfItsAdapterAndSentAgainOverItAlone(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	var mu sync.Mutex
	mended := false
	bad := newFake("smtp", func(_ context.Context, m notify.Message, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case mended:
			return nil
		case m.OrderID == created(1).OrderID:
			return fmt.Errorf("%w: 550 no such\r\nuser", notify.ErrPermanent)
		case m.OrderID == created(2).OrderID:
			panic("an adapter with a mistake")
		}
		return errDown
	})
	good := newFake("ntfy", nil)
	s, _ := service(t, db, notify.Config{Adapters: []notify.Adapter{bad, good}, MaxAttempts: 3})
	handle(t, s, created(1), created(2), created(3))
	testenv.Eventually(t, patience, "three letters", func() bool { return len(letters(t, db)) == 3 })
	if n1, n3 := bad.asked(created(1).ID), bad.asked(created(3).ID); n1 != 1 || n3 != 3 {
		t.Errorf("%d attempts of what is permanent, %d of what is not; want 1 and 3", n1, n3)
	}
	for _, l := range letters(t, db) {
		if !strings.HasSuffix(l.EventID, ".created.smtp") || !strings.HasPrefix(l.Reason, "smtp: ") || strings.ContainsAny(l.Reason, "\r\n") {
			t.Errorf("%+v", l)
		}
	}
	testenv.Eventually(t, patience, "nothing waits", func() bool { return waiting(t, db) == 0 })
	again := func(l events.DeadLetter) error { // as the consumer does when a person wants it
		e, err := events.Decode(l.Body)
		if err != nil {
			t.Fatal(err)
		}
		return s.Handle(t.Context(), []events.Event{e})
	}
	if err := again(letters(t, db)[2]); err == nil {
		t.Error("it is still down, and nobody says so")
	}
	mu.Lock()
	mended = true
	mu.Unlock()
	for _, l := range letters(t, db) {
		if err := again(l); err != nil {
			t.Error(err)
		}
	}
	if got := good.ids(); len(got) != 3 {
		t.Errorf("the other adapter was told again: %v", got)
	}
	if got := bad.ids(); len(got) != 3 || bad.asked(created(1).ID) != 2 {
		t.Errorf("sent again: %v", got)
	}
	none, _ := service(t, db, notify.Config{Adapters: []notify.Adapter{good}})
	e, _ := events.Decode(letters(t, db)[0].Body)
	if err := none.Handle(t.Context(), []events.Event{e}); err == nil || !strings.Contains(err.Error(), "no adapter is named smtp") {
		t.Errorf("an adapter that is not here: %v", err)
	}
}

// A process dies with what it has leased: others send it.
func TestWhatADeadProcessLeftBehindIsSent(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	a := newFake("smtp", nil)
	idle := notify.New(db.Store, notify.Config{Adapters: []notify.Adapter{a}, Log: quiet}) // queues, and never runs
	handle(t, idle, created(1), created(2), created(3))
	if got, err := db.Lease(t.Context(), "smtp", "dead", 300*time.Millisecond, 2); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	service(t, db, notify.Config{Adapters: []notify.Adapter{a}})
	testenv.Eventually(t, patience, "all three are sent", func() bool { return len(a.ids()) == 3 && waiting(t, db) == 0 })
}

// A message that takes the process with it again and again is dead after its attempts, and the others live.
func TestMessageThatKillsProcessesDies(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	a := newFake("smtp", nil)
	idle := notify.New(db.Store, notify.Config{Adapters: []notify.Adapter{a}, Log: quiet})
	handle(t, idle, created(1))
	for range 3 {
		testenv.Eventually(t, patience, "it is leased", func() bool {
			got, err := db.Lease(t.Context(), "smtp", "dies", time.Millisecond, 1)
			if err != nil {
				t.Fatal(err)
			}
			return len(got) == 1
		})
	}
	service(t, db, notify.Config{Adapters: []notify.Adapter{a}, MaxAttempts: 3})
	testenv.Eventually(t, patience, "a letter", func() bool { return len(letters(t, db)) == 1 })
	if l := letters(t, db)[0]; a.asked(created(1).ID) != 0 || !strings.Contains(l.Reason, "3 processes died") {
		t.Errorf("%+v", l)
	}
}

func TestStopHandsOverWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	begun, release := make(chan struct{}), make(chan struct{})
	slow := newFake("smtp", func(context.Context, notify.Message, int) error { close(begun); <-release; return nil })
	s, stop := service(t, db, notify.Config{Adapters: []notify.Adapter{slow}})
	handle(t, s, created(1))
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	if n := waiting(t, db); n != 0 || len(slow.ids()) != 1 {
		t.Errorf("%d wait, sent %v", n, slow.ids())
	}
}

func TestHandlerRefusesWhatHasNoBuyerAndSkipsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	s := notify.New(db.Store, notify.Config{Adapters: []notify.Adapter{newFake("smtp", nil)}, Log: quiet})
	nobody := created(1)
	nobody.Buyer = ""
	if err := s.Handle(t.Context(), []events.Event{nobody}); err == nil {
		t.Error("an order without a buyer is told")
	}
	handle(t, s, eventOf(2, "order.shipped", "shipped"))
	if n := waiting(t, db); n != 0 {
		t.Errorf("%d wait", n)
	}
}

func TestBrowserIsToldOnceEncryptedAndSigned(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	sv := newPushService(t, newKey(t))
	sv.answer = func(n int) (int, string) {
		if n == 1 {
			return 503, ""
		}
		return 201, ""
	}
	p := sv.browser.subscription(sv.URL + "/send/1")
	p.Buyer, p.Lang = "buyer-1", "zh"
	if _, err := db.Subscribe(t.Context(), p, 5); err != nil {
		t.Fatal(err)
	}
	s, _ := service(t, db, notify.Config{Web: sv.web()})
	handle(t, s, created(1), created(2))
	testenv.Eventually(t, patience, "it is sent", func() bool { return waiting(t, db) == 0 })
	got := sv.payloads()
	if len(got) != 2 { // the second attempt is a copy of the first
		t.Fatalf("%v", got)
	}
	want := map[string]string{
		"id": created(1).ID, "tag": created(1).ID, "title": "下单成功", "lang": "zh", "type": "order.created", "order_id": created(1).OrderID.String(), "sale_id": "shoe",
		"status": "created", "at": "2026-11-27T10:00:01Z", "body": got[1]["body"],
	}
	if fmt.Sprint(got[1]) != fmt.Sprint(want) || !strings.Contains(got[1]["body"], created(1).OrderID.String()) {
		t.Errorf("%v\n%v", got[1], want)
	}
	h := sv.heads[1]
	if h.Get("TTL") != "86400" || h.Get("Urgency") != "high" || h.Get("Topic") != created(1).OrderID.String() {
		t.Errorf("%v", h)
	}
}

func TestBrowserThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 410} {
		db := openStore(t)
		sv := newPushService(t, newKey(t))
		sv.answer = func(int) (int, string) { return status, "" }
		p := sv.browser.subscription(sv.URL + "/send/1")
		p.Buyer = "buyer-1"
		if _, err := db.Subscribe(t.Context(), p, 5); err != nil {
			t.Fatal(err)
		}
		s, _ := service(t, db, notify.Config{Web: sv.web()})
		handle(t, s, created(1))
		testenv.Eventually(t, patience, "it is forgotten", func() bool {
			all, err := db.Subscriptions(t.Context(), "buyer-1")
			return err == nil && len(all) == 0 && waiting(t, db) == 0
		})
		handle(t, s, eventOf(1, events.Paid, sale.StatusPaid))
		if n := len(sv.payloads()); n != 1 || waiting(t, db) != 0 || len(letters(t, db)) != 0 {
			t.Errorf("%d: told %d times", status, n)
		}
	}
}

// What buyers name may refuse everything, redirect or lead to this machine: it makes no dead letters, is not followed, and ends.
func TestHostileEndpointEndsAndReachesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		hidden bool // the service may not be reached
		asked  int
	}{"refuses": {status: 400, asked: 1}, "redirects": {status: 307, asked: 1}, "inside": {status: 201, hidden: true}, "never": {status: 500, asked: 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t)
			sv := newPushService(t, newKey(t))
			sv.answer = func(int) (int, string) { return c.status, "" }
			p := sv.browser.subscription(sv.URL + "/send/1")
			p.Buyer = "buyer-1"
			if _, err := db.Subscribe(t.Context(), p, 5); err != nil {
				t.Fatal(err)
			}
			web := sv.web()
			if c.hidden {
				web.Client = notify.PublicOnly()
			}
			s, _ := service(t, db, notify.Config{Web: web, MaxAttempts: 3})
			handle(t, s, created(1))
			testenv.Eventually(t, patience, "it is over", func() bool { return waiting(t, db) == 0 })
			if n := len(sv.payloads()); n != c.asked || len(letters(t, db)) != 0 {
				t.Errorf("asked %d times, want %d; letters %v", n, c.asked, letters(t, db))
			}
			for n := range 9 { // refusals in a row
				e := eventOf(n+2, events.Paid, sale.StatusPaid)
				e.Buyer = "buyer-1"
				handle(t, s, e)
			}
			testenv.Eventually(t, patience, "the subscription is dropped", func() bool {
				all, err := db.Subscriptions(t.Context(), "buyer-1")
				return err == nil && len(all) == 0 && waiting(t, db) == 0
			})
		})
	}
}

func TestRetryAfterOfAPushServiceIsHeardAndBounded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "999999999": time.Hour, "99999999999999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0} {
		if got := notify.RetryAfter(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
