package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// A sale is archived while another one runs. Purchases of it are still answered as closed, its summary and its audit
// remain, and a Redis that loses its data does not get its orders back.
func TestArchivedSale(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{edge: "gateway", backends: 2, workers: 1})
	s.createSale("old", 10)
	s.createSale("now", 10)
	for _, buyer := range []string{"ann", "bob", "cho"} {
		order := s.buyUnit("old", buyer)
		if got := s.status(buyer, order); got != "created" {
			t.Fatalf("%s: order %s is %s", buyer, order, got)
		}
	}
	dir := t.TempDir()
	archive := func() (string, int) {
		_, errOut, code := sluiceRun(t, s.env, "sale", "archive", "old", "--output", dir)
		return errOut, code
	}
	if errOut, code := archive(); code != 1 || !strings.Contains(errOut, "it is not closed") {
		t.Errorf("archive of an open sale: exit %d, %s", code, errOut)
	}
	if a := s.adminAPI("POST", "/admin/v1/sales/old/close", "{}"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	testenv.Eventually(t, time.Minute, "the events are handled and the sale is archived", func() bool {
		errOut, code := archive()
		if code != 0 && !strings.Contains(errOut, "order events") {
			t.Fatalf("exit %d: %s", code, errOut)
		}
		return code == 0
	})
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || !strings.HasPrefix(files[0].Name(), "old-1-") {
		t.Errorf("%v, %v", files, err)
	}
	s.buyUnit("now", "ann")

	known := map[string]bool{} // backends that have read the archived state from SQL
	closed := func() bool {
		all := true
		for _, base := range s.bases {
			for _, buyer := range []string{"ann", "dan"} {
				a := do(t, "POST", base+"/v1/sales/old/orders", s.token(buyer), "")
				if a.Status == 202 || a.Status == 404 && known[base] {
					t.Fatalf("%s: %s buys from the archived sale: %d %s", base, buyer, a.Status, a.Body)
				}
				known[base] = known[base] || a.Code == "sale-closed"
				all = all && a.Code == "sale-closed"
			}
		}
		return all
	}
	testenv.Eventually(t, time.Minute, "purchases are answered as closed", closed)

	var view struct {
		Sold    int64
		Archive struct {
			Orders  int64
			EndedAt *time.Time `json:"ended_at"`
		}
	}
	a := s.adminAPI("GET", "/admin/v1/sales/old", "")
	if err := json.Unmarshal(a.Body, &view); err != nil || view.Sold != 3 || view.Archive.Orders != 3 ||
		view.Archive.EndedAt == nil {
		t.Errorf("%s, %v", a.Body, err)
	}
	// A backend that reads SQL late may load the closed sale once more, until the next sweep.
	testenv.Eventually(t, time.Minute, "the audit reports an archived sale that balances", func() bool {
		body := string(s.adminAPI("GET", "/admin/v1/sales/old/audit", "").Body)
		return strings.Contains(body, `"archived":true`) && strings.Contains(body, `"balanced":true`)
	})

	if err := s.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.redis.Kill()
	s.redis.Start()
	order := s.buyUnit("now", "bob")
	testenv.Eventually(t, time.Minute, "the other sale continues", func() bool {
		return s.status("bob", order) == "created"
	})
	testenv.Eventually(t, time.Minute, "purchases are answered as closed after a rebuild", closed)
	if rows, _ := s.rows("old"); rows != 0 {
		t.Errorf("%d rows of the archived sale", rows)
	}
}
