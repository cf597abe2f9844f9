package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

// createSpread creates a sale with several segments.
func (s *stack) createSpread(id string, stock, segments int) {
	s.t.Helper()
	body := fmt.Sprintf(
		`{"id":%q,"title":"Thing","stock":%d,"price":{"amount":1999,"currency":"EUR"},"spread":%d,"opens_at":%q}`,
		id, stock, segments, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	s.create(body)
}

// atHome returns buyers whose home is the first segment of a sale.
func atHome(prefix string, n, segments int) (buyers []string) {
	for i := 0; len(buyers) < n; i++ {
		if buyer := fmt.Sprint(prefix, i); spread.Home(buyer, segments) == 0 {
			buyers = append(buyers, buyer)
		}
	}
	return buyers
}

// A sale over several shards sells its stock exactly, also to buyers of one segment alone; returned and added units are
// sold again by any segment; "sold out" is the last answer, and the audit balances.
func TestSpreadSale(t *testing.T) {
	t.Parallel()
	const segments, stock = 4, 200
	s := startStack(t, shape{backends: 2, workers: 2, journal: true, env: []string{"SLUICE_SHARDS=6"}})
	tooWide := `{"id":"wide","title":"Thing","stock":9,"price":{"amount":1,"currency":"EUR"},"spread":7,` +
		`"opens_at":"2026-01-01T00:00:00Z"}`
	a := s.adminAPI("POST", "/admin/v1/sales", tooWide)
	if a.Status != 422 && a.Status != 400 ||
		!strings.Contains(string(a.Body), "at most the number of shards, which is 6") {
		t.Errorf("more segments than shards: %d %s", a.Status, a.Body)
	}
	s.createSpread("s", stock, segments)

	// Three quarters of the units are in the segments of other buyers.
	for _, buyer := range atHome("skewed-", stock, segments) {
		if a := s.buyPatiently("s", buyer); !a.hasOrder() {
			t.Fatalf("%s: %d %s", buyer, a.Status, a.Body)
		}
	}
	for _, buyer := range []string{"late-1", "late-2", "late-3"} {
		if a := s.buyPatiently("s", buyer); a.Code != "sold-out" {
			t.Fatalf("after the last unit: %d %s", a.Status, a.Body)
		}
	}
	if a := s.buy("s", "skewed-never"); a.Status == 202 {
		t.Errorf("a sold-out sale accepted an order")
	}
	if a := s.buyPatiently("s", atHome("skewed-", 1, segments)[0]); a.Code != "already-bought" {
		t.Errorf("a second order of a buyer: %d %s", a.Status, a.Body)
	}
	testenv.Eventually(t, time.Minute, "the page shows that the sale is sold out", func() bool {
		a, err := try("GET", s.bases[0]+"/v1/sales/s", "", "")
		return err == nil && strings.Contains(string(a.Body), `"left":0`) &&
			strings.Contains(string(a.Body), `"state":"sold_out"`)
	})
	s.awaitBalanced("s", stock)

	// A restock reaches buyers of every segment.
	if a := s.adminAPI("POST", "/admin/v1/sales/s/restock", `{"add":1}`); a.Status != 200 {
		t.Fatalf("restock: %d %s", a.Status, a.Body)
	}
	var bought answer
	testenv.Eventually(t, time.Minute, "a buyer of another segment gets the unit", func() bool {
		bought = s.buy("s", "late-1")
		return bought.hasOrder()
	})
	// The unit of a cancelled order does too.
	testenv.Eventually(t, time.Minute, "the order is cancelled", func() bool {
		return s.adminAPI("POST", "/admin/v1/orders/"+bought.OrderID+"/cancel", `{}`).Status == 200
	})
	testenv.Eventually(t, time.Minute, "a buyer of another segment gets the returned unit", func() bool {
		return s.buy("s", "late-2").hasOrder()
	})
	s.awaitBalanced("s", stock+1)
	if a := s.adminAPI("POST", "/admin/v1/sales/s/close", ""); a.Status != 200 {
		t.Fatalf("close: %d %s", a.Status, a.Body)
	}
	for _, buyer := range []string{"z1", "z2", "z3", "z4"} {
		if a := s.buyPatiently("s", buyer); a.Code != "sale-closed" {
			t.Errorf("a closed sale: %d %s", a.Status, a.Body)
		}
	}
}

// buyPatiently repeats a purchase while its segment is empty, or Redis silent, for longer than a purchase waits.
func (s *stack) buyPatiently(saleID, buyer string) (a answer) {
	s.t.Helper()
	testenv.Eventually(s.t, time.Minute, "the purchase of "+buyer+" is decided", func() bool {
		a = s.buy(saleID, buyer)
		return a.Status != 503
	})
	return a
}

// hasOrder reports whether the buyer of a purchase has an order, of this purchase or of an earlier one that got a 503.
func (a answer) hasOrder() bool { return a.Status == 202 || a.Code == "already-bought" }

// awaitBalanced waits until all orders are rows and the audit of a sold-out sale balances.
func (s *stack) awaitBalanced(id string, stock int64) {
	s.t.Helper()
	testenv.Eventually(s.t, time.Minute, "all orders are rows and the audit balances", func() bool {
		r, _ := s.tryAudit(id)
		return r.Balanced && r.Ordered-r.Returning == stock && r.Stock == stock
	})
}

// Redis loses all data while a sale over several shards sells: no order is lost, and no unit is sold twice.
func TestSpreadSaleSurvivesAnEmptyRedis(t *testing.T) {
	t.Parallel()
	const stock = 1500
	s := startStack(t, shape{backends: 2, workers: 2, journal: true, env: []string{"SLUICE_SHARDS=4"}})
	s.createSpread("s", stock, 4)
	c := hammer(s, "s", 3)
	c.await(300)
	s.redis.Kill()
	if err := os.RemoveAll(filepath.Join(s.redis.Dir, "appendonlydir")); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(s.redis.Dir, "dump.rdb"))
	s.redis.Start()
	c.await(c.accepted.Load() + 300)
	c.check("s", stock)
}

// One of three masters of a cluster is lost while one sale sells on all of them: buyers of the other segments continue
// to buy, and the lost segment sells again after the promotion of its replica, complete, old or empty.
func TestSpreadSaleLosesAMaster(t *testing.T) {
	t.Parallel()
	const stock = 1500
	cluster := testenv.StartRedisCluster(t, 3, "--appendonly", "yes", "--appendfsync", "everysec")
	s := startStack(t, shape{
		backends: 2, workers: 2, journal: true, redisURL: cluster.URL, env: []string{"SLUICE_SHARDS=12"},
	})
	s.createSpread("s", stock, 12)
	c := hammer(s, "s", 6)
	c.await(200)
	master := cluster.Owner(keyspace.Space{Shards: 12}.ShardOfSegment("s", 5).Guard())
	cluster.Replace(master, testenv.Complete, nil)
	c.await(c.accepted.Load() + 200)
	c.check("s", stock)
}
