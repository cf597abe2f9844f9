package api

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin"
	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// whole is both applications on a real Redis and SQLite, wired as the program wires them.
type whole struct {
	redis            *testenv.Redis
	public, operator *site
	store            *store.Store
	list             *queue.List
}

func serveWhole(t *testing.T) *whole {
	t.Helper()
	server := testenv.StartRedis(t)
	client, err := redisconn.Open(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	space := keyspace.Space{}
	stock, list := admission.NewStock(client, space), queue.NewList(client, 0, queue.Config{})
	office := admin.New(db, stock, []admin.Shard{list}, quiet())
	limiter, err := admission.NewUserLimiter("5-M", nil)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewQueueCollector(Shards{list}, make(queue.Meters, 1), 100))
	metrics := NewMetrics(registry)
	public, err := NewPublic(PublicConfig{
		Admitter: admission.NewAdmitter(pipe, space, admission.NewSequencer(client, space, time.Now)), Stock: stock, Orders: db, Points: db, Dead: Shards{list},
		Tokens: key(t), Limiter: limiter, Known: office.Known, Metrics: metrics, Log: quiet(),
	})
	w := &whole{redis: server, store: db, list: list, public: serve(t, public, err)}
	operator, err := NewOperator(OperatorConfig{
		Desk: office, Ledger: audit.New(stock, db), Queue: Shards{list}, Rebuild: &fakeRebuild{}, Pace: make(queue.Meters, 1), Events: &fakeEvents{}, Webhooks: &fakeWebhooks{}, Board: newFakeBoard(), Pages: deskPages(), Token: adminToken, Gatherer: registry, Metrics: metrics, Log: quiet(),
	})
	w.operator = serve(t, operator, err)
	return w
}

// work turns what is queued into rows until the test ends.
func (w *whole) work(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- worker.New(w.list, w.store, worker.Config{Idle: 50 * time.Millisecond, Log: quiet()}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *whole) create(t *testing.T, id string, stock int) {
	t.Helper()
	a := w.operator.operate("POST", "/admin/v1/sales", fmt.Sprintf(`{"id":%q,"title":"Tea","stock":%d,"price":{"amount":1999,"currency":"EUR"},"opens_at":"2026-01-01T00:00:00Z"}`, id, stock))
	if a.status != 201 {
		t.Fatalf("create: %d %s", a.status, a.body)
	}
}

func (w *whole) audit(t *testing.T, id string) (r audit.Report) {
	t.Helper()
	a := w.operator.operate("GET", "/admin/v1/sales/"+id+"/audit", "")
	if a.status != 200 {
		t.Fatalf("audit: %d %s", a.status, a.body)
	}
	decode(t, a, &r)
	return r
}

// One sale from its creation to its end, over real stores.
func TestASaleFromCreationToClose(t *testing.T) {
	w := serveWhole(t)
	w.create(t, "drop", 2)
	if a := w.public.ask("GET", "/v1/sales/drop", ""); a.field(t, "state") != "open" || a.field(t, "left") != "2" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	first := w.public.buy(t, "ann", "Idempotency-Key: one")
	if first.status != 202 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	again := w.public.buy(t, "ann", `Idempotency-Key: "one"`)
	if again.status != 202 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("replay: %d %s", again.status, again.body)
	}
	wantProblem(t, w.public.buy(t, "ann", "Idempotency-Key: two"), 409, "already-bought")
	id := first.field(t, "order_id")
	if a := w.public.ask("GET", "/v1/orders/"+id, "", "Authorization: "+bearerOf(t, "ann")); a.field(t, "status") != "queued" {
		t.Errorf("before a worker runs: %s", a.body)
	}
	if r := w.audit(t, "drop"); !r.Balanced || r.Ready != 1 || r.Left != 1 {
		t.Errorf("audit: %+v", r)
	}

	waited := make(chan answer, 1)
	go func() {
		waited <- w.public.ask("GET", "/v1/orders/"+id+"?wait=20s", "", "Authorization: "+bearerOf(t, "ann"))
	}()
	w.work(t)
	if a := <-waited; a.field(t, "status") != "created" {
		t.Errorf("after a worker ran: %s", a.body)
	}
	wantProblem(t, w.public.ask("GET", "/v1/orders/"+id, "", "Authorization: "+bearerOf(t, "bob")), 404, "not-found")

	if a := w.public.buy(t, "bob"); a.status != 202 {
		t.Errorf("%d %s", a.status, a.body)
	}
	sold := w.public.buy(t, "cid")
	wantProblem(t, sold, 409, "sold-out")
	if got := sold.header.Get("Sluice-Sale"); got != "drop;state=sold_out;version=1;ttl=1000;holders=2" {
		t.Errorf("Sluice-Sale: %q", got)
	}
	for range 2 {
		if a := w.operator.operate("POST", "/admin/v1/sales/drop/restock", `{"add":3}`, "Idempotency-Key: more"); a.status != 200 || a.field(t, "stock") != "5" || a.field(t, "version") != "2" {
			t.Errorf("restock: %d %s", a.status, a.body)
		}
	}
	if a := w.public.buy(t, "cid"); a.status != 202 {
		t.Errorf("after restock: %d %s", a.status, a.body)
	}
	for _, row := range []struct{ verb, code string }{{"pause", "sale-paused"}, {"close", "sale-closed"}} {
		if a := w.operator.operate("POST", "/admin/v1/sales/drop/"+row.verb, ""); a.status != 200 {
			t.Errorf("%s: %d %s", row.verb, a.status, a.body)
		}
		wantProblem(t, w.public.buy(t, "dora"), 409, row.code)
	}
	wantProblem(t, w.operator.operate("POST", "/admin/v1/sales/drop/resume", ""), 409, "conflict")
	testenv.Eventually(t, 10*time.Second, "all orders are rows", func() bool { r := w.audit(t, "drop"); return r.Ordered == 3 && r.Balanced })
	limited := false
	for range 11 { // five a minute, and the minute may change once
		limited = limited || w.public.buy(t, "eve").status == 429
	}
	if !limited {
		t.Error("eleven requests of one buyer at once, and none was too many")
	}
	metrics := w.operator.ask("GET", "/metrics", "")
	for _, line := range []string{
		`sluice_api_purchase_total{outcome="accepted"} 3`, `sluice_api_purchase_total{outcome="replayed"} 1`, `sluice_api_requests_total{code="202",route="/v1/sales/:sale/orders"} 4`,
		`sluice_queue_messages{shard="0",place="ready"} 0`, "sluice_queue_up 1",
	} {
		if !strings.Contains(metrics.body, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

// Many buyers at once, each from several connections: nothing is sold twice, nobody has two, and everybody who was told so has an order.
func TestACrowdGetsExactlyTheStock(t *testing.T) {
	const buyers, stock = 60, 25
	w := serveWhole(t)
	w.create(t, "rush", stock)
	w.work(t)
	var mu sync.Mutex
	orders := map[string]string{} // by buyer
	var crowd sync.WaitGroup
	for b := range buyers {
		for range 3 {
			crowd.Go(func() {
				buyer := fmt.Sprint("buyer-", b)
				a := w.public.ask("POST", "/v1/sales/rush/orders", "", "Authorization: "+bearerOf(t, buyer))
				mu.Lock()
				defer mu.Unlock()
				if a.status == 202 {
					if other := orders[buyer]; other != "" {
						t.Errorf("%s has %s and %s", buyer, other, a.body)
					}
					orders[buyer] = a.body
				} else if a.status != 409 {
					t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
	}
	crowd.Wait()
	if len(orders) != stock {
		t.Errorf("%d buyers were accepted, want %d", len(orders), stock)
	}
	testenv.Eventually(t, 10*time.Second, "all orders are rows", func() bool { r := w.audit(t, "rush"); return r.Ordered == stock && r.Left == 0 && r.Balanced })
}

// With Redis paused every answer comes in time, and with it back everything goes on.
func TestRedisPausedIsAnsweredInTime(t *testing.T) {
	w := serveWhole(t)
	w.create(t, "drop", 5)
	w.redis.Pause()
	start := time.Now()
	wantProblem(t, w.public.buy(t, "ann"), 503, "temporarily-unavailable")
	wantProblem(t, w.public.ask("GET", "/v1/sales/drop", ""), 503, "temporarily-unavailable")
	wantProblem(t, w.operator.operate("POST", "/admin/v1/sales/drop/pause", ""), 503, "temporarily-unavailable")
	if a := w.operator.operate("GET", "/admin/v1/sales/drop", ""); a.status != 200 || a.field(t, "switch") != string(sale.Paused) || a.field(t, "applied") != "false" {
		t.Errorf("without Redis: %d %s", a.status, a.body)
	}
	took := time.Since(start)
	w.redis.Resume()
	if took > 15*time.Second {
		t.Errorf("four answers took %v", took)
	}
	testenv.Eventually(t, 20*time.Second, "the pause is applied", func() bool {
		return w.operator.operate("POST", "/admin/v1/sales/drop/pause", "").field(t, "applied") == "true"
	})
	wantProblem(t, w.public.buy(t, "bob"), 409, "sale-paused")
}
