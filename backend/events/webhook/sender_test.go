package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/backend/events"
	"sluice/backend/store/storetest"
	"sluice/internal/outbound"
	"sluice/test/contract"
	"sluice/test/testenv"
)

// everything reports that all deliveries are written.
func everything(context.Context) int64 { return math.MaxInt64 }

// shop is an endpoint on loopback that verifies requests, also against docs/openapi.yaml, and keeps their ids.
type shop struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	got    map[string]int // webhook-ids that were accepted
	order  []string       // in their order
	secret string
	answer func(w http.ResponseWriter, r *http.Request, id string) (taken bool)

	documented *contract.Contract
}

func newShop(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, id string) bool) *shop {
	t.Helper()
	documented, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, got: map[string]int{}, answer: answer, documented: documented}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.take))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *shop) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id := r.Header.Get("webhook-id")
	s.mu.Lock()
	secret := s.secret
	s.mu.Unlock()
	if hook, err := standardwebhooks.NewWebhook(
		secret,
	); err != nil || hook.Verify(body, r.Header) != nil || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("a forged request: %s %v", r.Method, r.Header)
	}
	name := "order"
	if strings.HasPrefix(id, pingPrefix) {
		name = TypePing
	}
	if err := s.documented.CheckWebhook(name, r.Header, body); err != nil {
		s.t.Error(err)
	}
	if s.answer != nil && !s.answer(w, r, id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[id]++
	s.order = append(s.order, id)
}

func (s *shop) ids() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[string]int{}
	for id, n := range s.got {
		ids[id] = n
	}
	return ids
}

// client reaches shops on loopback.
func client(t *testing.T, timeout time.Duration) *outbound.Client {
	t.Helper()
	c := outbound.New(outbound.Config{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout, PerHost: MaxRequests,
	})
	t.Cleanup(c.Close)
	return c
}

func quick() SenderConfig {
	return SenderConfig{
		Poll: 10 * time.Millisecond,
		Log:  slog.New(slog.DiscardHandler),
		Schedule: []time.Duration{
			time.Millisecond,
			time.Millisecond,
			2 * time.Millisecond,
			4 * time.Millisecond,
			8 * time.Millisecond,
		},
	}
}

type bench struct {
	*Store
	admin *Admin
}

func newBench(t *testing.T, c *outbound.Client) bench {
	t.Helper()
	db := NewStore(storetest.Open(t, storetest.SQLite(t)).DB)
	return bench{db, NewAdmin(db, c)}
}

func (b bench) endpoint(t *testing.T, s *shop, strict bool) Endpoint {
	t.Helper()
	e := b.admin.add(t, Settings{URL: &s.URL}, strict)
	s.mu.Lock()
	s.secret = e.Secret
	s.mu.Unlock()
	return e
}

// publish passes the events of n created and paid orders to the group.
func (b bench) publish(t *testing.T, n int) {
	t.Helper()
	var batch []events.Event
	for i := range n {
		batch = append(batch, happened(int64(i+1), events.Created, "s", int64(2*i+1)),
			happened(int64(i+1), events.Paid, "s", int64(2*i+2)))
	}
	if err := Handler(b.Store, func(int64) {})(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

func (b bench) show(t *testing.T, id string) Endpoint {
	t.Helper()
	e, err := b.admin.Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestReceiverThatFailsAndHangs(t *testing.T) {
	const orders = 60
	var n atomic.Int64
	var bad *shop
	bad = newShop(t, func(w http.ResponseWriter, r *http.Request, id string) bool {
		switch k := n.Add(1); {
		case k%50 == 49:
			<-r.Context().Done() // hangs until the sender gives up
			return false
		case k%5 == 0:
			w.WriteHeader(http.StatusInternalServerError)
			return false
		}
		if first := strings.Replace(id, "_paid_", "_created_", 1); first != id && bad.ids()[first] == 0 {
			t.Errorf("%s arrived before its order was created", id)
		}
		return true
	})
	good := newShop(t, nil)
	c := client(t, 5*time.Second) // the good one answers sooner on a slow machine too
	b := newBench(t, c)
	e, other := b.endpoint(t, bad, false), b.endpoint(t, good, false)
	b.publish(t, orders)
	cfg := quick()
	cfg.Schedule = make([]time.Duration, 30) // so that none is given up by chance
	for range 2 {
		testenv.Run(t, NewSender(b.Store, c, everything, cfg).Run)
	}
	testenv.Eventually(t, 90*time.Second, "all events are delivered",
		func() bool { return b.show(t, e.ID).Waiting == 0 && b.show(t, other.ID).Waiting == 0 })
	for _, s := range []*shop{bad, good} {
		ids := s.ids()
		if len(ids) != 2*orders {
			t.Errorf("%d ids, want %d", len(ids), 2*orders)
		}
	}
	for id, times := range good.ids() {
		if times != 1 {
			t.Errorf("%s arrived %d times", id, times)
		}
	}
	if got := b.show(t, e.ID); got.Failed != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHangingEndpointDelaysNoOther(t *testing.T) {
	release := make(chan struct{})
	hanging := newShop(t, func(http.ResponseWriter, *http.Request, string) bool { <-release; return true })
	t.Cleanup(func() { close(release) })
	good := newShop(t, nil)
	c := client(t, 30*time.Second)
	b := newBench(t, c)
	stuck, fine := b.endpoint(t, hanging, false), b.endpoint(t, good, false)
	b.publish(t, 40)
	cfg := quick()
	cfg.Drain = 10 * time.Millisecond
	stop := testenv.Run(t, NewSender(b.Store, c, everything, cfg).Run)
	testenv.Eventually(t, 60*time.Second, "the other endpoint has all events",
		func() bool { return len(good.ids()) == 80 && b.show(t, fine.ID).Waiting == 0 })
	if got := b.show(t, stuck.ID); got.Waiting != 80 {
		t.Errorf("%+v", got)
	}
	stop() // releases what is in flight without an attempt
	if list, err := b.admin.Deliveries(t.Context(), DeliveryQuery{EndpointID: stuck.ID, Limit: 1000}); err != nil ||
		len(list) != 80 {
		t.Error(len(list), err)
	} else {
		for _, d := range list {
			if d.Leased || d.Attempts != 0 {
				t.Errorf("after a stop: %+v", d)
			}
		}
	}
}

// Endpoints of a service that many shops use have the same host.
func TestHangingEndpointsDelayNoOtherAtTheirHost(t *testing.T) {
	release := make(chan struct{})
	s := newShop(t, func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if r.URL.Path != "/fine" {
			<-release
		}
		return true
	})
	t.Cleanup(func() { close(release) })
	c := client(t, 2*time.Minute)
	b := newBench(t, c)
	var fine Endpoint
	for _, path := range []string{"/a", "/b", "/c", "/fine"} {
		fine = b.admin.add(t, Settings{URL: new(s.URL + path)}, false)
		s.secret = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, secretBytes))
		if err := b.RotateSecret(t.Context(), fine.ID, s.secret, 0); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(t, 40)
	cfg := quick()
	cfg.Drain = 10 * time.Millisecond
	testenv.Run(t, NewSender(b.Store, c, everything, cfg).Run)
	testenv.Eventually(t, 60*time.Second, "the endpoint that does not hang has all events",
		func() bool { return b.show(t, fine.ID).Waiting == 0 })
}

func TestStrictEndpointGetsEverythingInOrder(t *testing.T) {
	var n atomic.Int64
	s := newShop(t, func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return false
		}
		return true
	})
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, true)
	b.publish(t, 20)
	for range 2 {
		testenv.Run(t, NewSender(b.Store, c, everything, quick()).Run)
	}
	testenv.Eventually(t, 3*time.Minute, "all events are delivered", func() bool { return b.show(t, e.ID).Waiting == 0 })
	for i, id := range s.order {
		if want := fmt.Sprintf("%d_%s_%s", i/2+1, []string{"created", "paid"}[i%2], e.ID); id != want {
			t.Fatalf("number %d is %s, want %s", i, id, want)
		}
	}
}

func TestGivenUpDeliveriesAreRedelivered(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	s := newShop(t, func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		if broken.Load() {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, strings.Repeat("é", 2000))
			return false
		}
		return true
	})
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, false)
	b.publish(t, 1)
	testenv.Run(t, NewSender(b.Store, c, everything, quick()).Run)
	testenv.Eventually(t, time.Minute, "both are given up", func() bool { return b.show(t, e.ID).Failed == 2 })
	if got := b.show(t, e.ID); got.FailingSince.IsZero() || got.State != EndpointActive {
		t.Errorf("%+v", got)
	}
	d, log, err := b.admin.Delivery(t.Context(), e.ID, "1_created_"+e.ID)
	if err != nil || d.State != DeliveryFailed || d.Attempts != 6 || len(log) != 6 || log[0].Status != http.StatusTeapot ||
		len(log[0].Answer) != 1<<10 {
		t.Errorf("%+v, %d attempts, %v", d, len(log), err)
	}
	broken.Store(false)
	if n, err := b.admin.RedeliverSince(t.Context(), e.ID, time.Now().Add(-time.Hour)); err != nil ||
		n != 2 {
		t.Fatal(n, err)
	}
	testenv.Eventually(t, time.Minute, "both are delivered",
		func() bool { return len(s.ids()) == 2 && b.show(t, e.ID).Waiting == 0 })
	if got := b.show(t, e.ID); got.Failed != 0 || !got.FailingSince.IsZero() {
		t.Errorf("%+v", got)
	}
	if err := b.admin.Redeliver(t.Context(), e.ID, "1_paid_"+e.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "a delivered one arrives again",
		func() bool { return s.ids()["1_paid_"+e.ID] == 2 })
}

func TestGoneDisablesAndPingReachesAPausedEndpoint(t *testing.T) {
	s := newShop(t, func(w http.ResponseWriter, _ *http.Request, id string) bool {
		if !strings.HasPrefix(id, "ping_") {
			w.WriteHeader(http.StatusGone)
			return false
		}
		return true
	})
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, false)
	if _, err := b.admin.Pause(t.Context(), e.ID); err != nil {
		t.Fatal(err)
	}
	b.publish(t, 1)
	testenv.Run(t, NewSender(b.Store, c, everything, quick()).Run)
	id, err := b.admin.Ping(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the ping has arrived", func() bool { return s.ids()[id] == 1 })
	if got := b.show(t, e.ID); got.State != EndpointPaused {
		t.Errorf("%+v", got)
	}
	if _, err := b.admin.Resume(t.Context(), e.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "it is disabled",
		func() bool { return b.show(t, e.ID).State == EndpointDisabled })
	if _, err := b.admin.Ping(t.Context(), e.ID); err == nil {
		t.Error("a ping to a disabled endpoint")
	}
	if _, err := b.admin.Pause(t.Context(), e.ID); err == nil {
		t.Error("a disabled endpoint can be paused")
	}
}

func TestNoDeliveryIsSentBeforeEarlierOnesAreWritten(t *testing.T) {
	s := newShop(t, nil)
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, false)
	b.publish(t, 2)
	var upTo atomic.Int64
	upTo.Store(2)
	testenv.Run(t, NewSender(b.Store, c, func(context.Context) int64 { return upTo.Load() }, quick()).Run)
	testenv.Eventually(t, time.Minute, "only two deliveries wait", func() bool { return b.show(t, e.ID).Waiting == 2 })
	if got := s.ids(); len(got) != 2 || got["1_created_"+e.ID] != 1 || got["1_paid_"+e.ID] != 1 {
		t.Errorf("%v", got)
	}
	upTo.Store(4)
	testenv.Eventually(t, time.Minute, "the rest has arrived", func() bool { return len(s.ids()) == 4 })
}

func TestRotatedSecretSignsBesideTheOldOne(t *testing.T) {
	var signatures atomic.Value
	s := newShop(t, func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		signatures.Store(r.Header.Get("webhook-signature"))
		return true
	})
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, false)
	fresh, err := b.admin.Rotate(t.Context(), e.ID, time.Hour)
	if err != nil || fresh == e.Secret {
		t.Fatal(err)
	}
	testenv.Run(t, NewSender(b.Store, c, everything, quick()).Run)
	for i, secret := range []string{e.Secret, fresh} { // the shop knows the old one, then the new one
		s.mu.Lock()
		s.secret = secret
		s.mu.Unlock()
		if _, err := b.admin.Ping(t.Context(), e.ID); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, time.Minute, "the ping has arrived", func() bool { return len(s.ids()) == i+1 })
		if n := len(strings.Fields(signatures.Load().(string))); n != 2 {
			t.Errorf("%d signatures", n)
		}
	}
}

func TestEndpointsWithInvalidResponses(t *testing.T) {
	inner := newShop(t, func(http.ResponseWriter, *http.Request, string) bool {
		t.Error("the redirect was followed")
		return false
	})
	for name, answer := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inner.URL, http.StatusPermanentRedirect)
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"never end": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, func(w http.ResponseWriter, r *http.Request, _ string) bool { answer(w, r); return false })
			c := client(t, 500*time.Millisecond)
			b := newBench(t, c)
			e := b.endpoint(t, s, false)
			id, err := b.admin.Ping(t.Context(), e.ID)
			if err != nil {
				t.Fatal(err)
			}
			cfg, lines := quick(), &testenv.Buffer{}
			cfg.Log = slog.New(slog.NewTextHandler(lines, nil))
			stop := testenv.Run(t, NewSender(b.Store, c, everything, cfg).Run)
			testenv.Eventually(t, time.Minute, "it is given up", func() bool {
				d, log, err := b.admin.Delivery(t.Context(), e.ID, id)
				return err == nil && d.State == DeliveryFailed && len(log) == 1 && log[0].Error != ""
			})
			stop()
			if got := b.show(t, e.ID); got.Failed != 0 || lines.String() != "" {
				t.Errorf("a ping is counted as a failed delivery: %d, and logged: %s", got.Failed, lines)
			}
		})
	}
	t.Run("a private address", func(t *testing.T) {
		s := newShop(t, func(http.ResponseWriter, *http.Request, string) bool {
			t.Error("the endpoint got a request")
			return false
		})
		b := newBench(t, client(t, time.Second))
		e := b.endpoint(t, s, false) // accepted while it was allowed
		id, err := b.admin.Ping(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Run(t, NewSender(b.Store, outbound.New(outbound.Config{}), everything, quick()).Run)
		testenv.Eventually(t, time.Minute, "it is given up", func() bool {
			d, log, err := b.admin.Delivery(t.Context(), e.ID, id)
			return err == nil && d.State == DeliveryFailed && strings.Contains(log[0].Error, "not allowed")
		})
	})
}

// faulty is a store with calls that fail sometimes, before or after they were executed.
type faulty struct {
	*Store
	broken func() bool
}

var errDown = errors.New("the database is unavailable")

func (f faulty) LeaseDeliveries(
	ctx context.Context,
	id string,
	upTo int64,
	lease time.Duration,
	limit int,
) (Endpoint, []Delivery, error) {
	e, leased, err := f.Store.LeaseDeliveries(ctx, id, upTo, lease, limit)
	if f.broken() { // leased, and the reply is lost
		return Endpoint{}, nil, errDown
	}
	return e, leased, err
}

func (f faulty) RecordResults(ctx context.Context, id string, results []Result) ([]int64, error) {
	if f.broken() {
		return nil, errDown
	}
	recorded, err := f.Store.RecordResults(ctx, id, results)
	if f.broken() {
		return nil, errDown
	}
	return recorded, err
}

func TestFailingStoreLosesNoDelivery(t *testing.T) {
	s := newShop(t, nil)
	c := client(t, 5*time.Second)
	b := newBench(t, c)
	e := b.endpoint(t, s, false)
	b.publish(t, 20)
	cfg := quick()
	// longer than an attempt with its result takes on a slow machine
	cfg.Lease = 2 * time.Second
	cfg.Schedule = make([]time.Duration, 30) // so that none is given up by chance
	testenv.Run(t, NewSender(faulty{b.Store, func() bool { return rand.N(4) == 0 }}, c, everything, cfg).Run)
	testenv.Eventually(t, 3*time.Minute, "all events are delivered", func() bool { return b.show(t, e.ID).Waiting == 0 })
	if n := len(s.ids()); n != 40 {
		t.Errorf("%d ids, want 40", n)
	}
}

// crashing is a store in which a process crashes when it has leased the delivery poison.
type crashing struct {
	*Store
	poison  string
	crashed func() // called after the crash; makes the lease expire
}

func (c crashing) LeaseDeliveries(
	ctx context.Context, id string, upTo int64, lease time.Duration, limit int,
) (Endpoint, []Delivery, error) {
	e, leased, err := c.Store.LeaseDeliveries(ctx, id, upTo, lease, limit)
	if slices.ContainsFunc(leased, func(d Delivery) bool { return d.ID == c.poison && !d.Interrupted }) {
		c.crashed()
		return Endpoint{}, nil, errDown
	}
	return e, leased, err
}

// A delivery that crashes its process at each attempt is given up after its attempts, without a failure of its
// endpoint. The next delivery of the order follows.
func TestDeliveryThatCrashesItsProcessesIsGivenUp(t *testing.T) {
	s := newShop(t, nil)
	c := client(t, 5*time.Second)
	url := storetest.SQLite(t)
	db := NewStore(storetest.Open(t, url).DB)
	b := bench{db, NewAdmin(db, c)}
	e := b.endpoint(t, s, false)
	b.publish(t, 1)
	var crashes atomic.Int64
	poison := "1_created_" + e.ID
	testenv.Run(t, NewSender(crashing{db, poison, func() {
		crashes.Add(1)
		storetest.Exec(t, url, "UPDATE webhook_deliveries SET leased_until = due_at WHERE leased_until IS NOT NULL")
	}}, c, everything, quick()).Run)
	testenv.Eventually(t, time.Minute, "no delivery waits", func() bool { return b.show(t, e.ID).Waiting == 0 })
	d, log, err := b.admin.Delivery(t.Context(), e.ID, poison)
	if err != nil || d.State != DeliveryFailed || d.Attempts != 6 || len(log) != 6 || crashes.Load() != 6 ||
		log[5].Error != errInterrupted.Error() {
		t.Errorf("%+v, attempts %+v, %v; %d crashes, want 6", d, log, err, crashes.Load())
	}
	got := b.show(t, e.ID)
	if s.ids()["1_paid_"+e.ID] != 1 || got.Failed != 1 || got.Failures != 0 || !got.FailingSince.IsZero() {
		t.Errorf("received %v; %+v", s.ids(), got)
	}
}
