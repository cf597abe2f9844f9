package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// An order that SQL rejects becomes a dead letter: its buyer and the admin see it, it holds its unit, it can be
// retried after the cause is removed, and a cancel returns the unit once.
func TestDeadLetterIsSeenRetriedAndCancelled(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 1, workers: 1})
	s.createSale("s", 5)
	ctx := context.Background()
	conn := s.sql()
	defer conn.Close(ctx)
	for i, buyer := range []string{"ann", "bob"} { // a row that Redis lacks, counted everywhere
		if _, err := conn.Exec(ctx, `INSERT INTO orders (id, sale_id, buyer, slot, serial) VALUES ($1, 's', $2, 1, $3)`, i+1,
			buyer, i+1); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, `UPDATE sales SET sold = sold + 1 WHERE id = 's'`); err != nil {
			t.Fatal(err)
		}
		c := s.redis.Client()
		c.Decr(ctx, "sluice:{0}:sale:s:stock")
		c.HIncrBy(ctx, "sluice:{0}:sale:s", "accepted", 1)
	}
	if r := s.audit("s"); !r.Balanced || r.Ordered != 2 || r.Left != 3 {
		t.Fatalf("before: %+v", r)
	}

	ids := map[string]string{}
	for _, buyer := range []string{"ann", "bob"} {
		a := s.buy("s", buyer)
		if a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		ids[buyer] = a.OrderID
		testenv.Eventually(t, time.Minute, buyer+" sees the order dead", func() bool {
			return do(t, "GET", s.base+"/v1/orders/"+a.OrderID, s.token(buyer), "").State == "dead"
		})
	}
	if r := s.audit("s"); !r.Balanced || r.Dead != 2 || r.Left != 1 {
		t.Errorf("dead: %+v", r)
	}
	list := s.adminAPI("GET", "/admin/v1/dead?sale=s", "")
	var page struct {
		Dead []struct {
			OrderID string `json:"order_id"`
			Reason  string
			History []any
		}
	}
	if json.Unmarshal(list.Body, &page) != nil || len(page.Dead) != 2 || page.Dead[0].OrderID != ids["ann"] ||
		page.Dead[0].Reason == "" ||
		len(page.Dead[0].History) == 0 {
		t.Errorf("the list is %s", list.Body)
	}

	if _, err := conn.Exec(ctx, `DELETE FROM orders WHERE id = 1`); err != nil { // ann's order can be written now
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `UPDATE sales SET sold = sold - 1 WHERE id = 's'`); err != nil {
		t.Fatal(err)
	}
	s.redis.Client().Incr(ctx, "sluice:{0}:sale:s:stock")
	if a := s.adminAPI("POST", "/admin/v1/dead/"+ids["ann"]+"/retry", ""); a.Status/100 != 2 {
		t.Errorf("retry: %d %s", a.Status, a.Body)
	}
	if o := do(t, "GET", s.base+"/v1/orders/"+ids["ann"]+"?wait=10s", s.token("ann"), ""); o.State != "created" {
		t.Errorf("after the retry: %s", o.Body)
	}
	env := []string{"SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_SERVER=" + s.admin}
	for _, row := range []struct{ flag, says string }{
		{"--dry-run", "1 order;"}, {"--reason=bought elsewhere", "1 settled, 0 failed"}, {"--reason=again", "0 settled, 0 failed"},
	} {
		out, errOut, code := sluiceRun(t, env, "dead", "cancel", "--sale", "s", "--died-after", "1h", row.flag)
		if code != 0 || !strings.Contains(out, row.says) {
			t.Errorf("dead cancel %s: exit %d\n%s%s", row.flag, code, out, errOut)
		}
	}
	if _, errOut, code := sluiceRun(t, env, "dead", "cancel"); code != 2 {
		t.Errorf("dead cancel without arguments: exit %d, %s", code, errOut)
	}
	if a := s.adminAPI(
		"POST",
		"/admin/v1/dead/"+ids["bob"]+"/cancel",
		"",
	); a.Status/100 != 2 { // a second cancel changes nothing
		t.Errorf("cancel again: %d %s", a.Status, a.Body)
	}
	if o := do(t, "GET", s.base+"/v1/orders/"+ids["bob"], s.token("bob"), ""); o.State != "cancelled" {
		t.Errorf("after the cancel: %s", o.Body)
	}
	r := s.audit("s")
	if !r.Balanced || r.Dead != 0 || r.Left != 3 || r.Ordered != 2 {
		t.Errorf("after: %+v", r)
	}
}
