package notify_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/internal/outbound"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

var quiet = slog.New(slog.DiscardHandler)

const patience = 30 * time.Second

// begin is the time of the tests.
var begin = time.Now().UTC().Truncate(time.Millisecond)

// created returns the created event of the n-th order.
func created(n int) events.Event { return eventOf(n, events.Created, sale.StatusCreated) }

func eventOf(n int, what events.Type, status sale.Status) events.Event {
	id := sale.NewOrderID(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), uint32(n))
	return events.Event{
		ID: events.ID(id, status), Type: what, OrderID: id, SaleID: "shoe", Buyer: fmt.Sprintf("buyer-%d", n),
		Was: sale.StatusQueued, At: begin.Add(-10 * time.Minute),
	}
}

// service runs one instance until the test ends or stop is called.
func service(t *testing.T, db testStore, cfg notify.Config) (s *notify.Service, stop func()) {
	t.Helper()
	if cfg.Backoff == 0 {
		cfg.Backoff = time.Millisecond
	}
	if cfg.Poll == 0 {
		cfg.Poll = 5 * time.Millisecond
	}
	if cfg.Drain == 0 {
		cfg.Drain = time.Second
	}
	cfg.Log = quiet
	s = notify.New(db.Store, cfg)
	return s, testenv.Run(t, s.Run)
}

// testStore is a Store in an empty SQLite database.
type testStore struct {
	*notify.Store
}

// subscribe subscribes a buyer at an endpoint of a push service.
func (db testStore) subscribe(t *testing.T, sv *pushService, buyer, path string) notify.Subscription {
	t.Helper()
	p := sv.browser.Subscription(sv.URL + path)
	p.Buyer = buyer
	kept, err := db.Subscribe(t.Context(), p, notify.MaxSubscriptions)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func openStore(t *testing.T) testStore {
	return testStore{notify.NewStore(storetest.Open(t, storetest.SQLite(t)).DB)}
}

func waiting(t *testing.T, db testStore) int64 {
	t.Helper()
	n, err := db.CountWaiting(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// outcomes counts attempts.
type outcomes struct{ *prometheus.Registry }

func newOutcomes() outcomes { return outcomes{prometheus.NewRegistry()} }

// String returns the counts that are not zero, by outcome.
func (o outcomes) String() string {
	counts := map[string]float64{}
	families, _ := o.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				counts[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return fmt.Sprint(counts)
}

func (s *pushService) web() *notify.WebConfig {
	return &notify.WebConfig{Key: s.key, Contact: "mailto:shop@example.com", Client: s.outbound()}
}

// outbound returns a client that may reach loopback addresses and trusts the service's certificate.
func (s *pushService) outbound() *outbound.Client {
	c := outbound.New(outbound.Config{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: rootsOf(s.Server),
	})
	s.t.Cleanup(c.Close)
	return c
}

// bothServices returns a client that trusts the certificates of two push services.
func bothServices(t *testing.T, a, b *pushService) *outbound.Client {
	roots := rootsOf(a.Server)
	roots.AddCert(b.Certificate())
	c := outbound.New(outbound.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots})
	t.Cleanup(c.Close)
	return c
}
