package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

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

// fake is an adapter that does what it is told.
type fake struct {
	name string
	mu   sync.Mutex
	sent []string // ids, copies too
	do   func(ctx context.Context, m notify.Message, nth int) error
	asks map[string]int
}

func newFake(name string, do func(context.Context, notify.Message, int) error) *fake {
	return &fake{name: name, do: do, asks: map[string]int{}}
}

func (f *fake) Name() string { return f.name }

func (f *fake) Send(ctx context.Context, m notify.Message) error {
	f.mu.Lock()
	f.asks[m.ID]++
	n := f.asks[m.ID]
	do := f.do
	f.mu.Unlock()
	if do != nil {
		if err := do(ctx, m, n); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.sent = append(f.sent, m.ID)
	f.mu.Unlock()
	return nil
}

func (f *fake) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.sent...)
}

func (f *fake) asked(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asks[id]
}

var errDown = errors.New("connection refused")

// created is the event of the n-th order.
func created(n int) events.Event { return eventOf(n, events.Created, sale.StatusCreated) }

func eventOf(n int, what events.Type, status sale.Status) events.Event {
	id := sale.NewOrderID(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), uint32(n))
	return events.Event{ID: events.ID(id, status), Type: what, OrderID: id, SaleID: "shoe", Buyer: fmt.Sprintf("buyer-%d", n), Was: sale.StatusQueued, At: time.Date(2026, 11, 27, 10, 0, 1, 0, time.UTC)}
}

// service runs one instance until the test ends, or stop is called.
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// testStore is a Store and the dead letters beside it.
type testStore struct {
	*notify.Store
	events *events.Store
}

func openStore(t *testing.T) testStore {
	db := storetest.Open(t, storetest.SQLite(t)).DB
	return testStore{notify.NewStore(db), events.NewStore(db)}
}

func waiting(t *testing.T, db testStore) (n int64) {
	t.Helper()
	all, err := db.CountWaiting(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		n += k
	}
	return n
}

func letters(t *testing.T, db testStore) []events.DeadLetter {
	t.Helper()
	all, err := db.events.DeadLetters(t.Context(), events.DeadLetterQuery{Group: notify.Group, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *pushService) web() *notify.WebConfig {
	return &notify.WebConfig{Key: s.key, Contact: "mailto:shop@example.com", Client: s.outbound()}
}

// outbound is the client of the program, that may reach this machine and believes the service's certificate.
func (s *pushService) outbound() *outbound.Client {
	c := outbound.New(outbound.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: rootsOf(s.Server)})
	s.t.Cleanup(c.Close)
	return c
}
