package notify_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
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

// ids returns the event ids that the push service has received, sorted, copies included.
func (s *pushService) ids() []string {
	var all []string
	for _, p := range s.payloads() {
		all = append(all, p["id"])
	}
	slices.Sort(all)
	return all
}

// One endpoint hangs and one is down. Messages to other subscriptions are sent meanwhile.
func TestSlowEndpointDoesNotDelayOtherSubscriptions(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	down := newPushService(t, sv.key)
	down.answer = func(int) (int, string) { return 503, "" }
	down.browser = sv.browser
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	sv.before = func(r *http.Request, _ map[string]string) {
		if r.URL.Path == "/hangs" {
			<-ended
		}
	}
	down.before = sv.before
	web := sv.web()
	web.Client = bothServices(t, sv, down)
	s, _ := service(t, db, notify.Config{
		Web: web, MaxAttempts: 1000, Backoff: 50 * time.Millisecond, Drain: time.Millisecond,
	})
	var want []string
	for n := range 40 {
		buyer := fmt.Sprintf("buyer-%d", n+1)
		if n == 0 {
			db.subscribe(t, sv, buyer, "/hangs")
			db.subscribe(t, down, buyer, "/down")
		}
		db.subscribe(t, sv, buyer, fmt.Sprintf("/send/%d", n))
		handle(t, s, created(n+1))
		want = append(want, created(n+1).ID)
	}
	slices.Sort(want)
	testenv.Eventually(t, patience, "all other subscriptions receive their message", func() bool {
		return slices.Equal(sv.ids(), want)
	})
	testenv.Eventually(t, patience, "only two messages wait", func() bool { return waiting(t, db) == 2 })
}

// More messages to one push service that hangs than a process leases do not delay those to another one.
func TestHangingPushServiceDelaysNoOther(t *testing.T) {
	t.Parallel()
	db, hangs := openStore(t), newPushService(t, newKey(t))
	sound := newPushService(t, hangs.key)
	sound.browser = hangs.browser
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	t.Cleanup(end)
	hangs.before = func(*http.Request, map[string]string) { <-ended }
	db.subscribe(t, hangs, "buyer-0", "/hangs")
	db.subscribe(t, sound, "buyer-1", "/send/1")
	var batch []events.Event
	for n := range 1300 {
		e := created(n + 2)
		e.Buyer = "buyer-0"
		batch = append(batch, e)
	}
	handle(t, idle(db, hangs), batch...)
	handle(t, idle(db, hangs), created(1))
	web := hangs.web()
	web.Client = bothServices(t, hangs, sound)
	_, stop := service(t, db, notify.Config{Web: web, Drain: patience}) // so that the stop interrupts no request
	testenv.Eventually(t, time.Minute, "the other push service receives its message", func() bool {
		return len(sound.ids()) == 1
	})
	end()
	stop()
}

// A message that is too old is dropped although its push service hangs.
func TestOldMessageToAHangingPushServiceIsDropped(t *testing.T) {
	t.Parallel()
	db, hangs := openStore(t), newPushService(t, newKey(t))
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	t.Cleanup(end)
	begun := make(chan struct{}, 2000)
	hangs.before = func(*http.Request, map[string]string) { begun <- struct{}{}; <-ended }
	db.subscribe(t, hangs, "buyer-0", "/hangs")
	var batch []events.Event
	for n := range 900 {
		e := created(n + 2)
		e.Buyer = "buyer-0"
		batch = append(batch, e)
	}
	handle(t, idle(db, hangs), batch...)
	s, stop := service(t, db, notify.Config{Web: hangs.web(), Drain: patience, MaxAttempts: 1000})
	for range 64 { // all requests that are made concurrently
		<-begun
	}
	old := created(1)
	old.Buyer, old.At = "buyer-0", begin.Add(-2*time.Hour)
	handle(t, s, old)
	testenv.Eventually(t, patience, "the old message is dropped", func() bool { return waiting(t, db) == 900 })
	end()
	stop()
}

// onWarning is a log that calls a function at each warning.
type onWarning struct {
	slog.Handler
	warned func(text string)
}

func (h onWarning) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h onWarning) Handle(_ context.Context, r slog.Record) error { h.warned(r.Message); return nil }

// While no result can be stored, a process makes no more requests to a push service than it may make concurrently. A
// crash would repeat all requests without a stored result.
func TestUnstoredResultsAreBounded(t *testing.T) {
	t.Parallel()
	url := storetest.SQLite(t)
	db, sv := testStore{notify.NewStore(storetest.Open(t, url).DB)}, newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	storetest.Exec(t, url, "CREATE TRIGGER stuck BEFORE UPDATE OF settled_at ON notifications "+
		"WHEN NEW.settled_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'stuck'); END")
	sent := make(chan int, 100)
	s := notify.New(db.Store, notify.Config{Web: sv.web(), Hold: 6 * time.Second, Drain: patience,
		Log: slog.New(onWarning{slog.DiscardHandler, func(text string) {
			if strings.Contains(text, "given up") {
				sent <- len(sv.payloads())
			}
		}})})
	var batch []events.Event
	for n := range 300 {
		e := created(n + 1)
		e.Buyer = "buyer-1"
		batch = append(batch, e)
	}
	handle(t, s, batch...)
	testenv.Run(t, s.Run)
	if n := <-sent; n > 64 {
		t.Errorf("%d messages were sent before a result was stored, want at most 64", n)
	}
	storetest.Exec(t, url, "DROP TRIGGER stuck")
}

func TestRedeliveredEventIsSentOnce(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	db.subscribe(t, sv, "buyer-2", "/send/2")
	s, _ := service(t, db, notify.Config{Web: sv.web()})
	other, _ := service(t, db, notify.Config{Web: sv.web()})
	batch := []events.Event{created(1), created(2), eventOf(1, events.Paid, sale.StatusPaid)}
	for range 3 {
		handle(t, s, batch...)
		handle(t, other, batch...)
	}
	testenv.Eventually(t, patience, "all messages are sent", func() bool { return waiting(t, db) == 0 })
	handle(t, s, batch...)
	want := []string{batch[0].ID, batch[1].ID, batch[2].ID}
	slices.Sort(want)
	if got := sv.ids(); !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	if n := waiting(t, db); n != 0 {
		t.Errorf("%d messages wait after another delivery, want 0", n)
	}
}

// A message about a created order is sent within an hour of the event, and any other message within a day. An older
// message is dropped, which is no failure of the subscription.
func TestOldMessageIsDropped(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	counted := newOutcomes()
	s, _ := service(t, db, notify.Config{Web: sv.web(), Registerer: counted})
	for what, hours := range map[events.Type][]int{
		events.Created: {0, 2, 23, 25}, events.Paid: {0, 2, 23, 25}, events.Cancelled: {0, 2, 23, 25},
	} {
		for _, h := range hours {
			e := eventOf(h, what, sale.Status(strings.TrimPrefix(string(what), "order.")))
			e.Buyer, e.At = "buyer-1", begin.Add(-time.Duration(h)*time.Hour)
			handle(t, s, e)
		}
	}
	testenv.Eventually(t, patience, "no message waits", func() bool { return waiting(t, db) == 0 })
	var sent []string
	for i, p := range sv.payloads() {
		at, err := time.Parse(time.RFC3339Nano, p["at"])
		ttl, err2 := strconv.Atoi(sv.heads[i].Get("TTL"))
		hours := int(begin.Sub(at).Hours())
		sent = append(sent, fmt.Sprintf("%s %d", p["status"], hours))
		if err != nil || err2 != nil || p["status"] != "created" && ttl > (24-hours)*3600 || ttl > 24*3600 {
			t.Errorf("%s after %d hours: TTL %d, %v, %v", p["status"], hours, ttl, err, err2)
		}
	}
	slices.Sort(sent)
	want := []string{
		"cancelled 0", "cancelled 2", "cancelled 23", "created 0", "paid 0", "paid 2", "paid 23",
	}
	if !slices.Equal(sent, want) || counted.String() != "map[sent:7]" {
		t.Errorf("sent %v, want %v; outcomes %s", sent, want, counted)
	}
}

// Redis lost its data while another group lagged, so an event is delivered again many hours after it was sent.
func TestEventThatIsRepeatedAfterHoursIsSentOnce(t *testing.T) {
	t.Parallel()
	url := storetest.SQLite(t)
	db, sv := testStore{notify.NewStore(storetest.Open(t, url).DB)}, newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	s, _ := service(t, db, notify.Config{Web: sv.web()})
	e := eventOf(1, events.Paid, sale.StatusPaid)
	e.At = begin.Add(-23 * time.Hour)
	handle(t, s, e)
	testenv.Eventually(t, patience, "the message is sent", func() bool { return waiting(t, db) == 0 })
	storetest.Exec(t, url, "UPDATE notifications SET settled_at = settled_at - 23 * 3600 * 1000")
	if _, err := db.Prune(t.Context(), notify.Retention, 1000); err != nil {
		t.Fatal(err)
	}
	handle(t, s, e)
	testenv.Eventually(t, patience, "no message waits", func() bool { return waiting(t, db) == 0 })
	if got := sv.ids(); len(got) != 1 {
		t.Errorf("sent %v, want one message", got)
	}
}

// idle returns a Service that queues and never sends.
func idle(db testStore, sv *pushService) *notify.Service {
	return notify.New(db.Store, notify.Config{Web: sv.web(), Log: quiet})
}

func TestMessagesOfCrashedProcessAreSentByAnother(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	for n := range 3 {
		db.subscribe(t, sv, fmt.Sprintf("buyer-%d", n+1), fmt.Sprintf("/send/%d", n))
	}
	handle(t, idle(db, sv), created(1), created(2), created(3))
	if got, err := db.Lease(t.Context(), 300*time.Millisecond, 2); err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	service(t, db, notify.Config{Web: sv.web()})
	testenv.Eventually(t, patience, "all three messages are sent", func() bool {
		return len(sv.ids()) == 3 && waiting(t, db) == 0
	})
}

// A message whose process crashes at each attempt is given up after its attempts. Other messages are sent.
func TestMessageThatCrashesProcessesIsGivenUp(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	db.subscribe(t, sv, "buyer-2", "/send/2")
	handle(t, idle(db, sv), created(1))
	for range 3 {
		testenv.Eventually(t, patience, "the message is leased", func() bool {
			got, err := db.Lease(t.Context(), time.Millisecond, 1)
			if err != nil {
				t.Fatal(err)
			}
			return len(got) == 1
		})
	}
	counted := newOutcomes()
	s, _ := service(t, db, notify.Config{Web: sv.web(), MaxAttempts: 3, Registerer: counted})
	handle(t, s, created(2))
	testenv.Eventually(t, patience, "no message waits", func() bool { return waiting(t, db) == 0 })
	if got := sv.ids(); !slices.Equal(got, []string{created(2).ID}) {
		t.Errorf("sent %v, want only the message of the second order", got)
	}
	if got := counted.String(); got != "map[given_up:1 sent:1]" {
		t.Errorf("outcomes %s", got)
	}
}

func TestStopFinishesRunningAttempts(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	begun, release := make(chan struct{}), make(chan struct{})
	sv.before = func(*http.Request, map[string]string) { close(begun); <-release }
	s, stop := service(t, db, notify.Config{Web: sv.web(), Drain: patience})
	handle(t, s, created(1))
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	if n := waiting(t, db); n != 0 || len(sv.ids()) != 1 {
		t.Errorf("%d messages wait, sent %v; want 0 and one", n, sv.ids())
	}
}

// An attempt that takes longer than Drain is interrupted. Its message is due immediately, for another process, and the
// attempt does not count.
func TestStopReleasesMessageOfInterruptedAttempt(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	begun, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(ended) })
	sv.before = func(*http.Request, map[string]string) { close(begun); <-ended }
	s, stop := service(t, db, notify.Config{Web: sv.web(), Drain: time.Millisecond})
	handle(t, s, created(1))
	<-begun
	stop()
	if got, err := db.Lease(t.Context(), time.Minute, 1); err != nil || len(got) != 1 || got[0].Attempts != 1 {
		t.Errorf("leased %v, %v; want the message for its first attempt", got, err)
	}
}

func TestHandleRejectsOrderWithoutBuyerAndSkipsUnknownEvents(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-2", "/send/2")
	s := idle(db, sv)
	e := created(1)
	e.Buyer = ""
	if err := s.Handle(t.Context(), []events.Event{e}); err == nil {
		t.Error("an order without a buyer is accepted")
	}
	handle(t, s, eventOf(2, "order.shipped", "shipped"))
	if n := waiting(t, db); n != 0 {
		t.Errorf("%d messages wait, want 0", n)
	}
}

func TestServiceWithoutKeyQueuesNothing(t *testing.T) {
	t.Parallel()
	db, sv := openStore(t), newPushService(t, newKey(t))
	db.subscribe(t, sv, "buyer-1", "/send/1")
	s, _ := service(t, db, notify.Config{})
	deleted := created(2)
	deleted.Buyer = ""
	handle(t, s, created(1), deleted)
	if n := waiting(t, db); n != 0 {
		t.Errorf("%d messages wait, want 0", n)
	}
}

func TestMessageIsEncryptedSignedAndRetried(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	sv := newPushService(t, newKey(t))
	sv.answer = func(n int) (int, string) {
		if n == 1 {
			return 503, ""
		}
		return 201, ""
	}
	p := sv.browser.Subscription(sv.URL + "/send/1")
	p.Buyer, p.Lang = "buyer-1", "zh"
	if _, err := db.Subscribe(t.Context(), p, 5); err != nil {
		t.Fatal(err)
	}
	counted := newOutcomes()
	s, _ := service(t, db, notify.Config{Web: sv.web(), Registerer: counted})
	handle(t, s, created(1), created(2))
	testenv.Eventually(t, patience, "the message is sent", func() bool { return waiting(t, db) == 0 })
	got := sv.payloads()
	if len(got) != 2 { // two attempts
		t.Fatalf("payloads %v, want 2", got)
	}
	want := map[string]string{
		"id": created(1).ID, "tag": created(1).ID, "title": "下单成功", "lang": "zh", "type": "order.created",
		"order_id": created(1).OrderID.String(), "sale_id": "shoe", "status": "created",
		"at": created(1).At.Format(time.RFC3339Nano), "body": got[1]["body"],
	}
	if fmt.Sprint(got[1]) != fmt.Sprint(want) || !strings.Contains(got[1]["body"], created(1).OrderID.String()) {
		t.Errorf("payload %v, want %v", got[1], want)
	}
	h := sv.heads[1]
	ttl, err := strconv.Atoi(h.Get("TTL")) // the rest of an hour
	if err != nil || ttl <= 0 || ttl > 50*60 || h.Get("Urgency") != "high" ||
		h.Get("Topic") != created(1).OrderID.String() {
		t.Errorf("headers %v", h)
	}
	if got := counted.String(); got != "map[failed:1 sent:1]" {
		t.Errorf("outcomes %s", got)
	}
}

func TestSubscriptionThatIsGoneIsDeleted(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 410} {
		db := openStore(t)
		sv := newPushService(t, newKey(t))
		sv.answer = func(int) (int, string) { return status, "" }
		db.subscribe(t, sv, "buyer-1", "/send/1")
		s, _ := service(t, db, notify.Config{Web: sv.web()})
		handle(t, s, created(1))
		testenv.Eventually(t, patience, "the subscription is deleted", func() bool {
			all, err := db.Subscriptions(t.Context(), "buyer-1")
			return err == nil && len(all) == 0 && waiting(t, db) == 0
		})
		handle(t, s, eventOf(1, events.Paid, sale.StatusPaid))
		if n := len(sv.payloads()); n != 1 || waiting(t, db) != 0 {
			t.Errorf("status %d: %d attempts, want 1", status, n)
		}
	}
}

// A hostile endpoint may reject every message, redirect, or lead to a private address. Redirects are not followed,
// private addresses are not reached, messages end, and the subscription is deleted.
func TestHostileEndpointIsDropped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   int
		private  bool // the outbound client rejects the address
		requests int
		outcomes string // of the first message
	}{
		"rejects":   {status: 400, requests: 1, outcomes: "map[refused:1]"},
		"redirects": {status: 307, requests: 1, outcomes: "map[refused:1]"},
		"private":   {status: 201, private: true, outcomes: "map[refused:1]"},
		"fails":     {status: 500, requests: 3, outcomes: "map[failed:2 given_up:1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t)
			sv := newPushService(t, newKey(t))
			sv.answer = func(int) (int, string) { return c.status, "" }
			db.subscribe(t, sv, "buyer-1", "/send/1")
			web := sv.web()
			if c.private {
				web.Client = notify.PublicOnly()
			}
			counted := newOutcomes()
			s, _ := service(t, db, notify.Config{Web: web, MaxAttempts: 3, Registerer: counted})
			handle(t, s, created(1))
			testenv.Eventually(t, patience, "the message ends", func() bool { return waiting(t, db) == 0 })
			if n := len(sv.payloads()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if got := counted.String(); got != c.outcomes {
				t.Errorf("outcomes %s, want %s", got, c.outcomes)
			}
			for n := range 9 { // consecutive failures
				e := eventOf(n+2, events.Paid, sale.StatusPaid)
				e.Buyer = "buyer-1"
				handle(t, s, e)
			}
			testenv.Eventually(t, patience, "the subscription is deleted", func() bool {
				all, err := db.Subscriptions(t.Context(), "buyer-1")
				return err == nil && len(all) == 0 && waiting(t, db) == 0
			})
		})
	}
}

// The push service refuses five messages, and the database stores no result, so they are sent several times. Each is
// one refusal of the subscription, which is deleted after ten.
func TestRefusalCountsOnceWhenItsResultIsStoredLate(t *testing.T) {
	t.Parallel()
	url := storetest.SQLite(t)
	db, sv := testStore{notify.NewStore(storetest.Open(t, url).DB)}, newPushService(t, newKey(t))
	sv.answer = func(int) (int, string) { return 400, "" }
	db.subscribe(t, sv, "buyer-1", "/send/1")
	storetest.Exec(t, url, "CREATE TRIGGER stuck BEFORE UPDATE OF settled_at ON notifications "+
		"WHEN NEW.settled_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'stuck'); END")
	const messages = 5
	s, _ := service(t, db, notify.Config{Web: sv.web(), Hold: time.Second, MaxAttempts: 1000})
	for n := range messages {
		e := eventOf(n+1, events.Paid, sale.StatusPaid)
		e.Buyer = "buyer-1"
		handle(t, s, e)
	}
	testenv.Eventually(t, patience, "the messages are sent again", func() bool {
		return len(sv.payloads()) > 2*messages
	})
	storetest.Exec(t, url, "DROP TRIGGER stuck")
	testenv.Eventually(t, patience, "no message waits", func() bool { return waiting(t, db) == 0 })
	if all, err := db.Subscriptions(t.Context(), "buyer-1"); err != nil || len(all) != 1 {
		t.Errorf("%d subscriptions, %v; want 1", len(all), err)
	}
}
