package httpapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin"
	"sluice/backend/admin/adminhttp"
	"sluice/backend/admin/livestats"
	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/api"
	"sluice/backend/api/userlimit"
	"sluice/backend/audit"
	"sluice/backend/events"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
	"sluice/backend/worker"
	"sluice/gateway/replay"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// backend is the public API and the admin API over a real Redis and SQLite, assembled as the program does.
type backend struct {
	redis         *testenv.Redis
	public, admin *servertest.Site
	store         *store.Store
	list          *queue.List
}

const (
	adminToken  = "the admin token"
	tokenSecret = "a secret for tests, of more than thirty-two bytes"
)

// startBackend starts a backend whose limit by buyer is rate, for example "5-M".
func startBackend(t *testing.T, rate string) *backend {
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
	db := storetest.Open(t, storetest.SQLite(t))
	space := keyspace.Space{}
	stock, list := admission.NewStock(admission.StockConfig{Client: client, Space: space}), queue.NewList(client, 0,
		queue.Config{})
	adminConfig := admin.Config{Store: db, Stock: stock, Shards: []admin.Shard{list}, Log: servertest.Quiet()}
	service := admin.New(adminConfig)
	limiter, err := userlimit.New(rate, nil)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(queue.NewCollector(queue.Shards{list}, make(queue.Meters, 1), 100))
	config := servertest.Config()
	config.Metrics = httpserver.NewMetrics(registry)
	public, err := api.New(api.Config{
		Admitter: admissiontest.NewAdmitter(t, client, space, func(c *admission.Config) { c.Client = pipe }),
		Stock:    stock,
		Finder:   admission.NewFinder(stock),
		Orders:   db,
		Points:   points.NewStore(db.DB),
		Dead:     queue.Shards{list},
		Tokens:   tokentest.Key(t, tokenSecret),
		Limiter:  limiter,
		Known:    service.Known,
		Archived: service.Archived,
		Intact: func(sale.OrderID) func(context.Context) bool {
			return func(context.Context) bool { return true }
		},
		QueueFull: func(spread.Part) time.Duration { return 5 * time.Second },
		Pages:     buyerPages(t),
		Metrics:   api.NewMetrics(registry),
		Server:    config,
	})
	if err != nil {
		t.Fatal(err)
	}
	adminServer, err := adminhttp.New(adminhttp.Config{
		Admin:     service,
		Dead:      admin.NewDeadLetters(adminConfig),
		Store:     db,
		Audit:     audit.New(stock, db).Audit,
		Queue:     queue.Shards{list},
		Pace:      make(queue.Meters, 1),
		Rebuilder: noRebuilder{},
		Shards:    oneShard{}.Status,
		Events:    events.NewAdmin(client, space, events.NewStore(db.DB)),
		Webhooks:  webhook.NewAdmin(webhook.NewStore(db.DB), nil),
		Policies:  replay.NewTrial(),
		Token:     adminToken,
		Gatherer:  registry,
		LiveStats: livestats.New(livestats.Config{Queue: queue.Shards{list}, Pace: make(queue.Meters, 1), Store: db}),
		Server:    config,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &backend{
		redis: server, store: db, list: list, public: servertest.Serve(t, public), admin: servertest.Serve(t, adminServer),
	}
}

// oneShard is a single Redis without a guard.
type oneShard struct{}

func (oneShard) Status(context.Context) []guard.Status {
	return []guard.Status{{Slot: -1, Master: "127.0.0.1:6379", Verified: true, Generation: 1, Sales: 1}}
}

// noRebuilder is a rebuilder that is never started.
type noRebuilder struct{}

func (noRebuilder) Run(context.Context, ...string) error { return errors.New("no rebuild is expected") }
func (noRebuilder) Status() rebuild.Status               { return rebuild.Status{} }

func buyerPages(t *testing.T) *buyer.Pages {
	t.Helper()
	p, err := buyer.New(buyer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// authorization returns the header of a buyer.
func authorization(t *testing.T, buyer string) string {
	t.Helper()
	return "Authorization: Bearer " + tokentest.Sign(t, tokenSecret, buyer, time.Hour)
}

// buy requests one unit of the sale "drop".
func (b *backend) buy(t *testing.T, buyer string, headers ...string) servertest.Answer {
	t.Helper()
	return b.public.Do("POST", "/v1/sales/drop/orders", "", append(headers, authorization(t, buyer))...)
}

// buyWithRetries requests one unit, and repeats the request while it is answered with 503, for at most a minute.
func (b *backend) buyWithRetries(t *testing.T, saleID, buyer, key string) servertest.Answer {
	t.Helper()
	for start := time.Now(); ; {
		a := b.public.Do("POST", "/v1/sales/"+saleID+"/orders", "", key, authorization(t, buyer))
		if a.Status != 503 || time.Since(start) > time.Minute {
			return a
		}
	}
}

// operate sends a request with the admin token.
func (b *backend) operate(method, path, body string, headers ...string) servertest.Answer {
	return b.admin.Do(
		method,
		path,
		body,
		append(headers, "Authorization: Bearer "+adminToken, "Content-Type: application/json")...)
}

// work runs a worker until the test ends.
func (b *backend) work(t *testing.T) {
	t.Helper()
	testenv.Run(t, worker.New(b.list, b.store, worker.Config{Idle: 50 * time.Millisecond, Log: servertest.Quiet()}).Run)
}

func (b *backend) create(t *testing.T, id string, stock int) {
	t.Helper()
	a := b.operate(
		"POST",
		"/admin/v1/sales",
		fmt.Sprintf(
			`{"id":%q,"title":"Tea","stock":%d,"price":{"amount":1999,"currency":"EUR"},"opens_at":"2026-01-01T00:00:00Z"}`,
			id,
			stock,
		),
	)
	if a.Status != 201 {
		t.Fatalf("create: %d %s", a.Status, a.Body)
	}
}

func (b *backend) audit(t *testing.T, id string) (r audit.Report) {
	t.Helper()
	a := b.operate("GET", "/admin/v1/sales/"+id+"/audit", "")
	if a.Status != 200 {
		t.Fatalf("audit: %d %s", a.Status, a.Body)
	}
	a.Decode(t, &r)
	return r
}

func TestSaleFromCreationToClose(t *testing.T) {
	b := startBackend(t, "5-M")
	b.create(t, "drop", 2)
	if a := b.public.Do("GET", "/v1/sales/drop", ""); a.Field(t, "state") != "open" || a.Field(t, "left") != "2" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	first := b.buy(t, "ann", "Idempotency-Key: one")
	if first.Status != 202 {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	again := b.buy(t, "ann", `Idempotency-Key: "one"`)
	if again.Status != 202 || again.Body != first.Body || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("replay: %d %s", again.Status, again.Body)
	}
	servertest.WantProblem(t, b.buy(t, "ann", "Idempotency-Key: two"), 409, "already-bought")
	id := first.Field(t, "order_id")
	if a := b.public.Do("GET", "/v1/orders/"+id, "", authorization(t, "ann")); a.Field(t, "status") != "queued" {
		t.Errorf("before a worker runs: %s", a.Body)
	}
	if r := b.audit(t, "drop"); !r.Balanced || r.Ready != 1 || r.Left != 1 {
		t.Errorf("audit: %+v", r)
	}

	waited := make(chan servertest.Answer, 1)
	go func() {
		waited <- b.public.Do("GET", "/v1/orders/"+id+"?wait=20s", "", authorization(t, "ann"))
	}()
	b.work(t)
	if a := <-waited; a.Field(t, "status") != "created" {
		t.Errorf("after a worker ran: %s", a.Body)
	}
	servertest.WantProblem(t, b.public.Do("GET", "/v1/orders/"+id, "", authorization(t, "bob")), 404, "not-found")

	if a := b.buy(t, "bob"); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	sold := b.buy(t, "cid")
	servertest.WantProblem(t, sold, 409, "sold-out")
	if got := sold.Header.Get("Sluice-Sale"); got != "drop;state=sold_out;version=1;ttl=1000;holders=2" {
		t.Errorf("Sluice-Sale: %q", got)
	}
	for range 2 {
		if a := b.operate("POST", "/admin/v1/sales/drop/restock", `{"add":3}`,
			"Idempotency-Key: more"); a.Status != 200 || a.Field(t, "stock") != "5" ||
			a.Field(t, "version") != "2" {
			t.Errorf("restock: %d %s", a.Status, a.Body)
		}
	}
	if a := b.buy(t, "cid"); a.Status != 202 {
		t.Errorf("after restock: %d %s", a.Status, a.Body)
	}
	for _, row := range []struct{ verb, code string }{{"pause", "sale-paused"}, {"close", "sale-closed"}} {
		if a := b.operate("POST", "/admin/v1/sales/drop/"+row.verb, ""); a.Status != 200 {
			t.Errorf("%s: %d %s", row.verb, a.Status, a.Body)
		}
		servertest.WantProblem(t, b.buy(t, "dora"), 409, row.code)
	}
	servertest.WantProblem(t, b.operate("POST", "/admin/v1/sales/drop/resume", ""), 409, "conflict")
	testenv.Eventually(t, time.Minute, "all orders are rows",
		func() bool { r := b.audit(t, "drop"); return r.Ordered == 3 && r.Balanced })
	limited := false
	for range 11 { // five a minute, and the minute may change once
		limited = limited || b.buy(t, "eve").Status == 429
	}
	if !limited {
		t.Error("none of eleven requests of one buyer was limited")
	}
	metrics := b.admin.Do("GET", "/metrics", "")
	for _, line := range []string{
		`sluice_api_purchases_total{outcome="accepted"} 3`, `sluice_api_purchases_total{outcome="replayed"} 1`,
		`sluice_http_requests_total{code="202",route="/v1/sales/:sale/orders"} 4`,
		`sluice_queue_messages{shard="0",state="ready"} 0`, "sluice_queue_up 1",
	} {
		if !strings.Contains(metrics.Body, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

// Many buyers purchase concurrently, each over several connections. A slow machine rejects some requests with 503;
// buyers repeat them with their idempotency key, and the limit by buyer does not end that.
func TestConcurrentBuyersGetExactlyTheStock(t *testing.T) {
	const buyers, stock = 60, 25
	b := startBackend(t, "1000-M")
	b.create(t, "rush", stock)
	b.work(t)
	var mu sync.Mutex
	orders := map[string]string{} // by buyer
	var purchases sync.WaitGroup
	for n := range buyers {
		for attempt := range 3 {
			purchases.Go(func() {
				buyer := fmt.Sprint("buyer-", n)
				a := b.buyWithRetries(t, "rush", buyer, fmt.Sprint("Idempotency-Key: ", attempt))
				mu.Lock()
				defer mu.Unlock()
				if a.Status == 202 {
					if other := orders[buyer]; other != "" {
						t.Errorf("%s has the orders %s and %s", buyer, other, a.Body)
					}
					orders[buyer] = a.Body
				} else if a.Status != 409 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
	}
	purchases.Wait()
	if len(orders) != stock {
		t.Errorf("%d buyers were accepted, want %d", len(orders), stock)
	}
	testenv.Eventually(t, time.Minute, "all orders are rows",
		func() bool { r := b.audit(t, "rush"); return r.Ordered == stock && r.Left == 0 && r.Balanced })
}

func TestPausedRedisIsAnsweredInTime(t *testing.T) {
	b := startBackend(t, "5-M")
	b.create(t, "drop", 5)
	b.redis.Pause()
	start := time.Now()
	servertest.WantProblem(t, b.buy(t, "ann"), 503, "temporarily-unavailable")
	servertest.WantProblem(t, b.public.Do("GET", "/v1/sales/drop", ""), 503, "temporarily-unavailable")
	servertest.WantProblem(t, b.operate("POST", "/admin/v1/sales/drop/pause", ""), 503, "temporarily-unavailable")
	if a := b.operate("GET", "/admin/v1/sales/drop", ""); a.Status != 200 || a.Field(t, "switch") != string(sale.Paused) ||
		a.Field(t, "applied") != "false" {
		t.Errorf("without Redis: %d %s", a.Status, a.Body)
	}
	took := time.Since(start)
	b.redis.Resume()
	if took > 15*time.Second {
		t.Errorf("four answers took %v", took)
	}
	testenv.Eventually(t, time.Minute, "the pause is applied", func() bool {
		return b.operate("POST", "/admin/v1/sales/drop/pause", "").Field(t, "applied") == "true"
	})
	servertest.WantProblem(t, b.buy(t, "bob"), 409, "sale-paused")
}

func TestBypassListHoldsAllBuyersOfASale(t *testing.T) {
	b := startBackend(t, "5-M")
	body := fmt.Sprintf(
		`{"id":"drop","title":"x","stock":2,"price":{"amount":1,"currency":"EUR"},"per_buyer":1,"opens_at":%q}`,
		time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
	)
	if a := b.operate("POST", "/admin/v1/sales", body); a.Status != 201 {
		t.Fatal(a.Body)
	}
	for _, buyer := range []string{"ann", "bob"} {
		if a := b.buy(t, buyer); a.Status != 202 {
			t.Fatal(a.Body)
		}
	}
	a := b.public.Do("GET", "/.sluice/sales/drop/holders", "")
	first, second := crc32.ChecksumIEEE([]byte("ann")), crc32.ChecksumIEEE([]byte("bob"))
	want := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, min(first, second)), max(first, second))
	if a.Body != string(want) || a.Header.Get("Sluice-Holders") != "drop;accepted=2;count=2" {
		t.Errorf("%x with %q, want %x", a.Body, a.Header.Get("Sluice-Holders"), want)
	}
	if hint := b.buy(t, "cid").Header.Get(
		"Sluice-Sale",
	); !strings.HasPrefix(hint, "drop;state="+string(sale.StateSoldOut)) ||
		!strings.HasSuffix(hint, ";holders=2") {
		t.Errorf("Sluice-Sale: %q", hint)
	}
}
