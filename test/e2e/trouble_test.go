package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// While PostgreSQL is down, purchases are accepted, orders are shown as queued, and they become rows when it is back.
func TestPurchasesContinueWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 1, workers: 1, pg: testenv.StartPostgres(t)})
	s.createSale("s", 10)
	stored := s.buy("s", "bob")
	s.settle("s", 1)
	s.pg.Kill()
	begin := time.Now()
	a := s.buy("s", "ann")
	if a.Status != 202 {
		t.Fatalf("with the database down a purchase gets %d %s", a.Status, a.Body)
	}
	order := s.base + "/v1/orders/" + a.OrderID
	if o := do(t, "GET", order, s.token("ann"), ""); o.Status != 200 || o.State != "queued" {
		t.Errorf("the order is shown as %d %s", o.Status, o.Body)
	}
	if o := do(t, "GET", s.base+"/v1/orders/"+stored.OrderID, s.token("bob"), ""); o.State != "queued" {
		t.Errorf("the stored order is shown as %d %s", o.Status, o.Body)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the answers took %s", took)
	}
	if r, err := try("GET", s.base+"/readyz", "", ""); err != nil || r.Status != 503 {
		t.Errorf("readyz with the database down: %d, %v", r.Status, err)
	}
	s.pg.Start()
	testenv.Eventually(t, time.Minute, "the order is created after the database is back", func() bool {
		return do(t, "GET", order+"?wait=5s", s.token("ann"), "").State == "created"
	})
	if r := s.settle("s", 2); !r.Balanced || r.Dead != 0 {
		t.Errorf("audit: %+v", r)
	}
}

// Redis hangs or is stopped: requests get 503 in time, and the same process sells again when Redis is back.
func TestRedisDownIsUnavailableImmediately(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{edge: "gateway", backends: 1, workers: 1})
	s.createSale("s", 10)
	if a := s.buy("s", "ann"); a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.settle("s", 1)
	for name, fault := range map[string][2]func(){
		"paused": {s.redis.Pause, s.redis.Resume},
		"killed": {s.redis.Kill, s.redis.Start},
	} {
		fault[0]()
		for i := range 3 {
			begin := time.Now()
			a := s.buy("s", fmt.Sprint("bob-", name, i))
			if a.Status != 503 || a.Code != "temporarily-unavailable" || a.Header.Get("Retry-After") == "" {
				t.Errorf("with Redis %s: %d %s", name, a.Status, a.Body)
			}
			if took := time.Since(begin); took > 20*time.Second { // the client would wait for a minute
				t.Errorf("with Redis %s an answer took %s", name, took)
			}
		}
		fault[1]()
		testenv.Eventually(t, time.Minute, "a purchase after Redis was "+name, func() bool {
			return s.buy("s", "cid-"+name).Status/100 != 5
		})
	}
	var final audit
	testenv.Eventually(t, time.Minute, "an idle queue", func() bool {
		var a answer
		final, a = s.tryAudit("s")
		return a.Status == 200 && final.Ready+final.Delayed+final.Leased == 0
	})
	if !final.Balanced {
		t.Errorf("audit: %+v", final)
	}
}

// The order of a client that closes its connection after sending is accepted, and the client gets it with a retry.
func TestOrderSurvivesAClosedConnection(t *testing.T) {
	t.Parallel()
	for _, edge := range []string{"edge", "gateway"} {
		t.Run(edge, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, shape{edge: edge, backends: 1, workers: 1})
			s.createSale("s", 10)
			hostport := strings.TrimPrefix(s.base, "http://")
			accepted := 0
			for i := range 5 {
				buyer := fmt.Sprint("buyer-", i)
				conn, err := net.Dial("tcp", hostport)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(
					conn,
					"POST /v1/sales/s/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: "+
						"\"one\"\r\nContent-Length: 0\r\n\r\n",
					s.token(buyer),
				)
				switch i {
				case 0:
				case 4:
					testenv.Eventually(t, time.Minute, "an order is accepted", func() bool { return s.audit("s").Left < 10 })
				default: // close after growing delays
					_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond << (2 * i)))
					_, _ = conn.Read(make([]byte, 1))
				}
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
			for i := range 5 {
				a := s.buy("s", fmt.Sprint("buyer-", i), "Idempotency-Key", `"one"`)
				if a.Status != 202 {
					t.Errorf("the retry returned %d %s", a.Status, a.Body)
				}
				if a.Header.Get("Idempotency-Replayed") == "true" {
					accepted++
				}
			}
			if accepted == 0 {
				t.Error("no retry found the order of a closed connection")
			}
			if r := s.settle("s", 5); !r.Balanced || r.Left != 5 {
				t.Errorf("audit: %+v", r)
			}
		})
	}
}

// SIGTERM drains: the worker finishes what it has leased, every process exits 0.
func TestTerminationDrains(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{edge: "edge", backends: 1, workers: 1})
	s.createSale("s", 100)
	for i := range 100 {
		if a := s.buy("s", fmt.Sprint("b", i), "X-Forwarded-For", "1.2.3.4"); a.Status != 202 && a.Status != 429 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for name, p := range map[string]*process{"edge": s.edge, "worker": s.workers[0]} {
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("the %s exits with %d", name, code)
		}
	}
	if r := s.audit("s"); r.Leased != 0 || !r.Balanced {
		t.Errorf("after the worker has drained: %+v", r)
	}
	if code := s.backends[0].end(syscall.SIGTERM); code != 0 {
		t.Errorf("the backend exits with %d", code)
	}
}

// A restock during a sale neither loses nor adds a unit.
func TestRestockWhileSelling(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 2, workers: 1})
	s.createSale("s", 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5 {
			s.adminAPI("POST", "/admin/v1/sales/s/restock", `{"add":10}`)
		}
	}()
	sold := 0
	for i := range 120 {
		for range 3 {
			if a := s.buy("s", fmt.Sprint("b", i)); a.Status == 202 {
				sold++
				break
			}
		}
	}
	<-done
	for i := range 100 {
		if a := s.buy("s", fmt.Sprint("late", i)); a.Status == 202 {
			sold++
		}
	}
	if sold != 70 {
		t.Errorf("sold %d of 70", sold)
	}
	if r := s.settle("s", 70); !r.Balanced || r.Stock != 70 || r.Left != 0 {
		t.Errorf("audit: %+v", r)
	}
}

// Redis starts again with older data: the audit reports it, and the procedure of docs/operations.md restores the
// balance.
func TestOlderRedisIsDetectedAndRebuilt(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 1, workers: 1})
	s.createSale("s", 20)
	c, ctx := s.redis.Client(), context.Background()
	for i := range 5 {
		s.buy("s", fmt.Sprint("b", i))
	}
	s.settle("s", 5)
	keys := []string{"sluice:{0}:sale:s", "sluice:{0}:sale:s:stock", "sluice:{0}:sale:s:buyers"}
	var older []string
	for _, k := range keys {
		older = append(older, c.Dump(ctx, k).Val())
	}
	for i := range 5 {
		s.buy("s", fmt.Sprint("c", i))
	}
	s.settle("s", 10)
	for i, k := range keys {
		if err := c.RestoreReplace(ctx, k, 0, older[i]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.audit("s"); r.Balanced || len(r.Differences) == 0 {
		t.Fatalf("the audit reports no difference: %+v", r)
	}
	s.adminAPI("POST", "/admin/v1/sales/s/pause", "")
	if err := c.Del(ctx, keys...).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "a backend fills the sale from SQL",
		func() bool { return s.audit("s").Balanced })
	s.adminAPI("POST", "/admin/v1/sales/s/resume", "")
	if a := s.buy("s", "c3"); a.Code != "already-bought" {
		t.Errorf("a buyer with an order that Redis had lost: %d %s", a.Status, a.Body)
	}
	if r := s.audit("s"); !r.Balanced || r.Left != 10 || r.Ordered != 10 {
		t.Errorf("after: %+v", r)
	}
}
