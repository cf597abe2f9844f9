package store_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// patience is the timeout of operations in these tests, and slack the additional time that a busy machine may need.
const (
	patience = 500 * time.Millisecond
	slack    = 3 * time.Second
)

// everyCall returns a call of each operation, on the sale "s".
func everyCall(s *env) map[string]func(context.Context) error {
	created, dead := storetest.Sale("new", 1), storetest.Order("s", "dead")
	payment := storetest.Payment(dead, "ref")
	return map[string]func(context.Context) error{
		"Ping":          s.Ping,
		"Write":         func(ctx context.Context) error { return s.Write(ctx, storetest.Orders("s", 2)) },
		"CreateSale":    func(ctx context.Context) error { _, err := s.CreateSale(ctx, created); return err },
		"Sale":          func(ctx context.Context) error { _, _, err := s.Sale(ctx, "s"); return err },
		"SaleSummaries": func(ctx context.Context) error { _, err := s.SaleSummaries(ctx); return err },
		"Details":       func(ctx context.Context) error { _, err := s.Details(ctx, "s"); return err },
		"SetDetails": func(ctx context.Context) error {
			_, err := s.SetDetails(ctx, "s", sale.Details{Picture: "http://x"})
			return err
		},
		"SetSwitch": func(ctx context.Context) error { _, err := s.SetSwitch(ctx, "s", sale.On); return err },
		"Restock":   func(ctx context.Context) error { _, err := s.Restock(ctx, "s", 1, "key"); return err },
		"Order":     func(ctx context.Context) error { _, err := s.Order(ctx, dead.ID); return err },
		"OrdersByID": func(ctx context.Context) error {
			_, err := s.OrdersByID(ctx, []sale.OrderID{1})
			return err
		},
		"Statuses": func(ctx context.Context) error { _, err := s.Statuses(ctx, []sale.OrderID{1}); return err },
		"Recorded": func(ctx context.Context) error { _, err := s.Recorded(ctx, []sale.OrderID{1}); return err },
		"OrdersOf": func(ctx context.Context) error {
			return s.OrdersOf(ctx, spread.Part{SaleID: "s"}, func(sale.Order) error { return nil })
		},
		"Count": func(ctx context.Context) error {
			_, err := s.Count(ctx, spread.Part{SaleID: "s"}, store.Always, nil)
			return err
		},
		"CancelOrder":   func(ctx context.Context) error { _, _, err := s.CancelOrder(ctx, dead.ID); return err },
		"CancelOverdue": func(ctx context.Context) error { _, err := s.CancelOverdue(ctx, 1); return err },
		"Returning":     func(ctx context.Context) error { _, err := s.Returning(ctx, 0, 0, 1); return err },
		"LastReturn":    func(ctx context.Context) error { _, err := s.LastReturn(ctx, "s"); return err },
		"MarkReturned":  func(ctx context.Context) error { return s.MarkReturned(ctx, []store.Return{{ID: 1, Number: 1}}) },
		"Returned":      func(ctx context.Context) error { _, err := s.Returned(ctx, []sale.OrderID{1}); return err },
		"Pay":           func(ctx context.Context) error { _, _, err := s.Pay(ctx, payment); return err },
		"Rows":          func(ctx context.Context) error { _, err := s.OrderRows(ctx, store.OrderQuery{}); return err },
		"Callbacks":     func(ctx context.Context) error { _, err := s.Callbacks(ctx, store.CallbackQuery{}); return err },
		"SettleRefund":  func(ctx context.Context) error { _, err := s.SettleRefund(ctx, 1, ""); return err },
		"CancelDead": func(ctx context.Context) error {
			_, err := s.CancelDead(ctx, store.DeadOrder{Order: dead})
			return err
		},
		"LogRetry":        func(ctx context.Context) error { return s.LogRetry(ctx, dead, "test") },
		"Record":          func(ctx context.Context) error { return s.Record(ctx, "test", "s", "") },
		"ClaimDeployment": func(ctx context.Context) error { _, _, err := s.ClaimDeployment(ctx, 1); return err },
		"SalesPage":       func(ctx context.Context) error { _, err := s.SalesPage(ctx, store.SalesQuery{}); return err },
		"Totals":          func(ctx context.Context) error { _, err := s.Totals(ctx); return err },
		"Log":             func(ctx context.Context) error { _, err := s.Log(ctx, store.LogQuery{Limit: 1}); return err },
	}
}

func wantAllUnavailable(t *testing.T, s *env) {
	t.Helper()
	var wg sync.WaitGroup
	for name, call := range everyCall(s) {
		wg.Go(func() {
			start := time.Now()
			if err := call(context.Background()); !errors.Is(err, sale.ErrUnavailable) || errors.Is(err, store.ErrRejected) {
				t.Errorf("%s: %v, want ErrUnavailable", name, err)
			}
			if took := time.Since(start); took > patience+slack {
				t.Errorf("%s took %s, the timeout is %s", name, took, patience)
			}
		})
	}
	wg.Wait()
}

func wantAllWork(t *testing.T, s *env) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the database answers again",
		func() bool { return s.Ping(context.Background()) == nil })
	for name, call := range everyCall(s) {
		testenv.Eventually(t, time.Minute, name+" works again", func() bool {
			err := call(context.Background())
			return err == nil || errors.Is(err, sale.ErrNotFound) || errors.Is(err, sale.ErrExists)
		})
	}
}

func TestPostgresStoppedIsUnavailableUntilRestart(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	open(t, server.URL, store.Config{}).create(t, "s", 1000) // migrations can take longer than patience
	s := open(t, server.URL, store.Config{Timeout: patience})
	wantAllWork(t, s)
	server.Stop()
	wantAllUnavailable(t, s)
	server.Start()
	wantAllWork(t, s)
}

func TestPostgresUnresponsiveEndsCallsAfterTimeout(t *testing.T) {
	server := testenv.SharedPostgres(t)
	open(t, server.URL, store.Config{}).create(t, "s", 1000)
	wire := newWire(t, server.URL)
	s := open(t, wire.url, store.Config{Timeout: patience})
	wire.cut()
	wantAllUnavailable(t, s)
	start := time.Now()
	if _, err := store.Open(context.Background(), wire.url, store.Config{Timeout: patience}); !errors.Is(err,
		sale.ErrUnavailable) || time.Since(start) > patience+slack {
		t.Errorf("open took %s: %v", time.Since(start), err)
	}
	wire.restore()
	wantAllWork(t, s)
}

func TestPostgresUnresponsiveDoesNotBlockClose(t *testing.T) {
	server := testenv.SharedPostgres(t)
	open(t, server.URL, store.Config{}) // creates the tables, which may take longer than the timeout
	wire := newWire(t, server.URL)
	var s *store.DB
	testenv.Eventually(t, time.Minute, "it opens within the timeout", func() (opened bool) {
		var err error
		s, err = store.Open(context.Background(), wire.url, store.Config{Timeout: patience})
		return err == nil
	})
	wire.cut()
	defer wire.restore()
	start := time.Now()
	_ = s.Close() // can return that connections are still in use
	if took := time.Since(start); took > patience+slack {
		t.Errorf("close took %s, its timeout is %s", took, patience)
	}
}

func TestPostgresLockedSaleIsUnavailableAndCancelsTheStatement(t *testing.T) {
	server := testenv.SharedPostgres(t)
	patient := open(t, server.URL, store.Config{})
	patient.create(t, "s", 1000)
	wire := newWire(t, server.URL)
	s := open(t, wire.url, store.Config{Timeout: slack}) // within it, the write must be seen to wait
	ctx := context.Background()
	other, observer := newRival(t, server.URL), storetest.Connect(t, server.URL)
	other.exec("UPDATE sales SET sold = sold")
	written := make(chan error, 1)
	go func() { written <- s.Write(ctx, storetest.Orders("s", 3)) }()
	storetest.AwaitLocks(t, server.URL, 1)
	wire.cut() // so that the server does not detect that the client has disconnected
	if err := <-written; !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("while the sale is locked: %v", err)
	}
	testenv.Eventually(t, time.Minute, "the server cancels the statement", func() bool {
		var active int
		err := observer.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE application_name = 'sluice' AND state = 'active' AND datname = current_database()`).Scan(&active)
		return err == nil && active == 0
	})
	wire.restore()
	other.exec("ROLLBACK")
	patient.wantRows(t, "s", 0)
	wantAllWork(t, s)
}

func TestPostgresReadOnlyIsUnavailable(t *testing.T) {
	server := testenv.SharedPostgres(t)
	open(t, server.URL, store.Config{}).create(t, "s", 10)
	s := open(t, server.URL+"&default_transaction_read_only=on", store.Config{})
	if err := s.Write(context.Background(), storetest.Orders("s", 1)); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("read-only server: %v", err)
	}
	if _, _, err := s.Sale(context.Background(), "s"); err != nil {
		t.Fatal(err)
	}
}

// Writers continue while the server is killed and recovers. Every acknowledged order must be stored and counted once.
func TestPostgresKilledKeepsAcknowledgedOrders(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	open(t, server.URL, store.Config{}).create(t, "s", 1_000_000)
	s := open(t, server.URL, store.Config{Timeout: patience})
	var stop atomic.Bool
	var acknowledged, failed atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				batch := storetest.Orders("s", 50)
				for { // like the worker: the same batch until it is written
					err := s.Write(context.Background(), batch)
					if err == nil {
						acknowledged.Add(50)
						break
					}
					if !errors.Is(err, sale.ErrUnavailable) {
						t.Errorf("write: %v", err)
						return
					}
					failed.Add(1)
					time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the pause of a worker, not a wait for a result
				}
			}
		})
	}
	more := func() func() bool {
		before := acknowledged.Load()
		return func() bool { return acknowledged.Load() > before+500 }
	}
	for range 2 {
		testenv.Eventually(t, time.Minute, "orders are written", more())
		server.Kill()
		server.Start()
	}
	testenv.Eventually(t, time.Minute, "orders are written after the crash", more())
	stop.Store(true)
	wg.Wait()
	if failed.Load() == 0 {
		t.Error("no write failed during the crash")
	}
	s.wantRows(t, "s", acknowledged.Load())
}

// wire forwards connections to a server. While it is cut, no data passes in either direction and no connection is
// closed, as if a host had frozen.
type wire struct {
	url  string
	gate sync.RWMutex // held for writing while cut
}

func newWire(t *testing.T, databaseURL string) *wire {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	target, w := u.Host, &wire{}
	u.Host = testenv.ServeTCP(t, func(client net.Conn) {
		if server, err := net.Dial("tcp", target); err == nil {
			go w.forward(server, client)
			w.forward(client, server)
		}
	})
	w.url = u.String()
	return w
}

func (w *wire) cut()     { w.gate.Lock() }
func (w *wire) restore() { w.gate.Unlock() }

func (w *wire) forward(from, to net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.gate.RLock()
		_, werr := to.Write(buf[:n])
		w.gate.RUnlock()
		if err != nil || werr != nil {
			return
		}
	}
}
