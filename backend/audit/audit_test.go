package audit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// shop is a sale over Redis and PostgreSQL without workers.
type shop struct {
	t       *testing.T
	redis   redisconn.Client
	store   *store.Store
	stock   *admission.Stock
	admit   *admission.Admitter
	queue   *queue.List
	checker *audit.Checker
}

func open(t *testing.T, stock int64) *shop {
	t.Helper()
	ctx := t.Context()
	client := testenv.StartRedis(t).Client()
	db := storetest.Open(t, storetest.Postgres(t))
	var space keyspace.Space
	s := &shop{
		t: t, redis: client, store: db, stock: admission.NewStock(admission.StockConfig{Client: client, Space: space}),
		admit: admissiontest.NewAdmitter(t, client, space),
		queue: queue.NewList(client, 0, queue.Config{MaxAttempts: 1}),
	}
	s.checker = audit.New(s.stock, db)
	def, err := db.CreateSale(ctx, sale.Sale{
		ID: "s", Title: "Thing", Price: sale.Price{Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour), Switch: sale.On,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stock.Load(ctx, def,
		func(context.Context, spread.Part, func(sale.Order) error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) buy(buyer string) {
	s.t.Helper()
	_, err := s.admit.Admit(
		s.t.Context(), admission.Request{SaleID: "s", Buyer: buyer, Key: rand.Text(), KeyTTL: time.Minute, Fingerprint: "f"},
	)
	if err != nil {
		s.t.Error(err)
	}
}

func (s *shop) audit() audit.Report {
	s.t.Helper()
	r, err := s.checker.Audit(s.t.Context(), "s")
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *shop) take(n int) queue.Batch {
	s.t.Helper()
	b, _, err := queuetest.Take(s.t.Context(), s.queue, n, "")
	if err != nil || len(b.Messages) != n {
		s.t.Fatalf("Take returned %d of %d messages: %v", len(b.Messages), n, err)
	}
	return b
}

// kill makes the next order a dead letter.
func (s *shop) kill() {
	s.t.Helper()
	b := s.take(1)
	failure := queue.Failure{ID: b.Messages[0].ID, Reason: "no", Permanent: true}
	if _, err := s.queue.Ack(s.t.Context(), b.ID, failure); err != nil {
		s.t.Fatal(err)
	}
}

func TestAuditCountsEveryOrderOnce(t *testing.T) {
	s := open(t, 10)
	ctx := t.Context()
	for i := range 7 {
		s.buy(fmt.Sprint("b", i))
	}
	rows := s.take(2)
	if err := s.store.Write(ctx, rows.Messages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.Ack(ctx, rows.ID); err != nil {
		t.Fatal(err)
	}
	committed := s.take(1) // a row that is still leased
	if err := s.store.Write(ctx, committed.Messages); err != nil {
		t.Fatal(err)
	}
	s.take(1)
	s.kill()
	want := audit.Report{SaleID: "s", Stock: 10, Left: 3, Ready: 2, Leased: 1, Ordered: 3, Dead: 1, Balanced: true}
	if got := s.audit(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A process without the index adds one letter and deletes another, so that the numbers of lines and letters are equal.
func TestAuditRepairsTheIndexOfDeadLetters(t *testing.T) {
	s := open(t, 5)
	s.buy("ann")
	s.kill()
	lines := keyspace.Shard(0).Dead().Index()
	breakIndex := func() {
		s.redis.Del(t.Context(), lines)
		s.redis.ZAdd(t.Context(), lines, redis.Z{Member: "other 1 7 7 other 1 1 bob"})
	}
	breakIndex()
	if r := s.audit(); !r.Balanced || r.Dead != 1 {
		t.Errorf("Audit: %+v", r)
	}
	breakIndex()
	a := s.auditor(audit.AuditorConfig{
		RecheckDelay: time.Millisecond,
		Pause:        func(_ context.Context, _, reason string) error { t.Error("paused:", reason); return nil },
	})
	if _, err := a.RunOnce(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAuditReportsDifferences(t *testing.T) {
	for name, damage := range map[string]func(s *shop){
		"missing unit":    func(s *shop) { s.redis.Decr(s.t.Context(), keyspace.Shard(0).Stock("s")) },
		"additional unit": func(s *shop) { s.redis.Incr(s.t.Context(), keyspace.Shard(0).Stock("s")) },
		"missing order":   func(s *shop) { s.redis.RPop(s.t.Context(), keyspace.Shard(0).Ready()) },
		"duplicate order": func(s *shop) {
			ready := keyspace.Shard(0).Ready()
			s.redis.LPush(s.t.Context(), ready, s.redis.LIndex(s.t.Context(), ready, 0).Val())
		},
		"oversold with a correct sum": func(s *shop) {
			for i := range 4 { // left becomes -1
				s.redis.LPush(s.t.Context(), keyspace.Shard(0).Ready(), fmt.Sprintf("%d s 1 %d eve%d", 9000+i, 3+i, i))
				s.redis.Decr(s.t.Context(), keyspace.Shard(0).Stock("s"))
			}
		},
		"Redis lost the sale": func(s *shop) { s.redis.FlushAll(s.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, 5)
			s.buy("ann")
			s.buy("bob")
			if r := s.audit(); !r.Balanced {
				t.Fatalf("before: %+v", r)
			}
			damage(s)
			if r := s.audit(); r.Balanced || len(r.Differences) == 0 {
				t.Errorf("the audit balances: %+v", r)
			}
		})
	}
	if _, err := open(t, 1).checker.Audit(t.Context(), "unknown"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("an unknown sale: %v", err)
	}
}

// A sale can be removed while it is audited, such as a rehearsal. The other sales of the shard are audited.
func TestRemovedSaleDoesNotEndTheAuditOfOthers(t *testing.T) {
	s := open(t, 20)
	s.buy("ann")
	reports, err := s.checker.AuditShard(t.Context(), 0, []spread.Part{{SaleID: "removed"}, {SaleID: "s"}})
	if r := reports["s"]; err != nil || !r.Balanced || r.Ready != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r := reports["removed"]; !r.Balanced || r.Stock != 0 {
		t.Errorf("the removed sale: %+v", r)
	}
	if _, err := s.checker.Audit(t.Context(), "removed"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("the audit of the removed sale: %v", err)
	}
}

// The audit balances at every instant of a running sale, with buyers and two workers.
func TestAuditBalancesWhileTheSaleRuns(t *testing.T) {
	s := open(t, 2000)
	ctx, stop := context.WithCancel(t.Context())
	var workers errgroup.Group
	for range 2 {
		workers.Go(func() error { return worker.New(s.queue, s.store, worker.Config{Batch: 20}).Run(ctx) })
	}
	var buyers errgroup.Group
	audited := make(chan struct{}, 8) // buyers wait for audits, so that a slow machine audits during the sale
	for b := range 8 {
		buyers.Go(func() error {
			for i := range 300 {
				if i%30 == 29 {
					<-audited
				}
				s.buy(fmt.Sprintf("b%d-%d", b, i))
			}
			return nil
		})
	}
	sold := make(chan struct{})
	go func() { _ = buyers.Wait(); close(sold) }()
	audits, between := 0, 0
	for open := true; open; audits++ {
		select {
		case <-sold:
			open = false
		default:
		}
		r := s.audit()
		for range cap(audited) {
			select {
			case audited <- struct{}{}:
			default:
			}
		}
		if !r.Balanced {
			t.Fatalf("audit %d: %+v", audits, r)
		}
		if r.Left > 0 && r.Left < r.Stock {
			between++
		}
	}
	testenv.Eventually(t, time.Minute, "every order in SQL", func() bool { return s.audit().Ordered == 2000 })
	stop()
	_ = workers.Wait()
	if between < 3 {
		t.Errorf("only %d of %d audits ran during the sale", between, audits)
	}
}

// A Redis that returns with older data than SQL (failover to a lagging replica, a write after Redis was emptied) has
// too many units, and its own numbers still add up.
func TestRowsThatRedisNeverAcceptedAreReported(t *testing.T) {
	s := open(t, 100)
	for i := range 10 {
		s.buy(fmt.Sprint("early", i))
	}
	if err := s.store.Write(t.Context(), s.take(10).Messages); err != nil {
		t.Fatal(err)
	}
	if r := s.audit(); !r.Balanced {
		t.Fatalf("before: %+v", r)
	}
	keys := s.redis.Keys(t.Context(), "*").Val()
	older := map[string]string{}
	for _, k := range keys {
		older[k] = s.redis.Dump(t.Context(), k).Val()
	}
	for i := range 20 {
		s.buy(fmt.Sprint("late", i))
	}
	if err := s.store.Write(t.Context(), s.take(20).Messages); err != nil {
		t.Fatal(err)
	}
	if r := s.audit(); !r.Balanced || r.Ordered != 30 {
		t.Fatalf("before the loss: %+v", r)
	}
	s.redis.FlushAll(t.Context())
	for k, dump := range older {
		if err := s.redis.Restore(t.Context(), k, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.audit(); r.Balanced || len(r.Differences) == 0 {
		t.Errorf("Redis has 90 units left of 100, and 30 orders are rows: %+v", r)
	}
}

// bothCounts has the rows of two sales without orders. A count ends when both have begun.
type bothCounts struct {
	audit.Rows
	begun *sync.WaitGroup
}

func (b bothCounts) Count(context.Context, spread.Part, store.Instant, []sale.OrderID) (store.Count, error) {
	b.begun.Done()
	b.begun.Wait()
	return store.Count{}, nil
}

// twoSales is Redis with two sales.
type twoSales struct{ segmentCount }

func (twoSales) CountShardUnits(
	_ context.Context, _ keyspace.Shard, ids []string,
) (map[string]*admission.UnitCount, error) {
	counts := map[string]*admission.UnitCount{}
	for i, id := range ids {
		counts[id] = &admission.UnitCount{Loaded: true, Stock: int64(i), Left: int64(i)}
	}
	return counts, nil
}

// The sales of a shard are read from SQL concurrently: a rebuild waits for their audit.
func TestSalesOfAShardAreReadConcurrently(t *testing.T) {
	rows := bothCounts{begun: &sync.WaitGroup{}}
	rows.begun.Add(2)
	reports, err := audit.New(twoSales{}, rows).AuditShard(t.Context(), 0, []spread.Part{{SaleID: "a"}, {SaleID: "b"}})
	if err != nil || len(reports) != 2 || !reports["a"].Balanced || !reports["b"].Balanced || reports["b"].Stock != 1 {
		t.Errorf("%+v, %v", reports, err)
	}
}
