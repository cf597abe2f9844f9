package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/backend/events/webhook"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestWebhooksByCommand(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startUp(t, data, "--allow-private", "127.0.0.0/8", "--webhook-timeout", "2s")
	r := newReceiver(t)
	id := r.add(t, data, "--title", "Shop", "--type", "order.created", "--sale", "demo")
	token, _, _ := sluiceRun(t, nil, "token", "--user", "ann", "--data", data)
	a := do(t, "POST", u.base+"/v1/sales/demo/orders", strings.TrimSpace(token), "")
	if a.Status != 202 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	delivery := a.OrderID + "_created_" + id
	testenv.Eventually(t, time.Minute, "the webhook arrives", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.took[delivery] == 1
	})
	for _, s := range []struct {
		args string
		code int
		want string
	}{
		{"webhook add http://shop.example/", 0, "secret"}, // private networks are allowed, and the name may resolve to one
		{"webhook add http://10.0.0.1/", 2, "not public"},
		{"webhook add https://user:hush@shop.example/", 2, "password"},
		{"webhook add https://169.254.169.254/", 2, "not public"},
		{"webhook add ftp://shop.example/", 2, "https://"},
		{"webhook add https://shop.example/ --type order.lost", 2, "order.paid"},
		{"webhook add", 2, "URL is missing"},
		{"webhook list", 0, "Shop"},
		{"webhook show ID", 0, "order.created"},
		{"webhook show nosuch", 1, "there is no webhook endpoint"},
		{"webhook ping ID", 0, "the endpoint returned 200"},
		{"webhook deliveries ID", 0, "delivered"},
		{"webhook deliveries ID --state odd", 2, "waiting"},
		{"webhook deliveries ID " + delivery, 0, `"type":"order.created"`},
		{"webhook pause ID --reason night", 0, "is paused"},
		{"webhook show ID", 0, "night"},
		{"webhook resume ID", 0, "is resumed"},
		{"webhook change ID --title New --type order.paid", 0, "is changed"},
		{"webhook change ID", 2, "--title"},
		{"webhook rotate ID --keep 1h --json", 0, "whsec_"},
		{"webhook rotate ID --keep 999h", 2, "keep"},
		{"webhook redeliver ID " + delivery, 0, "is sent again"},
		{"webhook redeliver ID", 2, "--failed"},
		{"webhook redeliver ID --failed --since 2026-01-01T00:00:00Z", 0, "deliveries sent again: 0"},
		{"webhook redeliver ID nothing", 1, "there is no delivery"},
		{"webhook remove ID", 2, "--yes"},
		{"webhook remove ID --yes", 0, "is removed"},
		{"webhook ping ID", 1, "there is no webhook endpoint"},
		{"group run webhooks", 2, "no Redis"},
		{"group run webhooks --allow-private 10.0.0.1/8", 2, "--allow-private"},
		{"group run webhooks --webhook-timeout 1h", 2, "--webhook-timeout"},
		{"group list", 0, "webhooks"},
	} {
		args := strings.Fields(strings.Replace(s.args, "ID", id, 1))
		if !strings.Contains(s.args, "run ") {
			args = append(args, "--data", data)
		}
		stdout, errOut, code := sluiceRun(t, nil, args...)
		if code != s.code || !strings.Contains(strings.ToLower(stdout+errOut), strings.ToLower(s.want)) ||
			code != 0 && strings.Count(strings.TrimSpace(errOut), "\n") != 0 {
			t.Errorf("sluice %s: exit %d, want %d and %q\n%s%s", s.args, code, s.code, s.want, stdout, errOut)
		}
	}
	if log := fmt.Sprint(u.output()); strings.Contains(log, "whsec_") || strings.Contains(log, r.secret) {
		t.Error("a secret is in the log")
	}
}

// Two instances of the group and the relaying process are killed repeatedly while orders are written and cancelled and
// the receiver fails. Every event arrives at least once, under its own id, and cancelled after created.
func TestNoWebhookIsLostWhenInstancesAreKilled(t *testing.T) {
	t.Parallel()
	const orders, kills = 300, 4
	g := startGroup(t, "webhooks", nil, "--allow-private", "127.0.0.0/8", "--webhook-timeout", "500ms")
	store := g.orders
	shop := newReceiver(t)
	id := shop.add(t, g.up.data, "--sale", "s")
	all := storetest.Orders("s", orders)
	want := map[string]bool{}
	for i := 0; i < orders; i += 10 {
		if err := store.Write(t.Context(), all[i:i+10]); err != nil {
			t.Fatal(err)
		}
		for k, o := range all[i : i+10] {
			want[fmt.Sprintf("%s_created_%s", o.ID, id)] = true
			if k < 2 {
				if _, _, err := store.CancelOrder(t.Context(), o.ID); err != nil {
					t.Fatal(err)
				}
				want[fmt.Sprintf("%s_cancelled_%s", o.ID, id)] = true
			}
		}
		if i%(orders/kills) == 0 {
			g.kill(i / (orders / kills))
		}
	}
	testenv.Eventually(t, 2*time.Minute, "every event has arrived", func() bool { return shop.taken() >= len(want) })
	testenv.Eventually(t, time.Minute, "nothing waits, nothing is pending", func() bool {
		e, err := webhook.NewStore(store.DB).Show(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		out, _, _ := sluiceRun(t, nil, "group", "list", "--json", "--data", g.up.data)
		return e.Waiting == 0 && e.Failed == 0 && strings.Count(out, `"pending": 0`) >= 2 &&
			strings.Count(out, `"dead": 0`) >= 2
	})
	shop.mu.Lock()
	defer shop.mu.Unlock()
	again := 0
	for id, n := range shop.took {
		if !want[id] {
			t.Errorf("%s belongs to no event", id)
		}
		again += n - 1
	}
	if len(shop.took) != len(want) || shop.forged != 0 || len(shop.early) != 0 {
		t.Errorf("%d ids, want %d; %d forged; before their orders were created: %v", len(shop.took), len(want), shop.forged,
			shop.early)
	}
	t.Logf("%d events, %d repeated", len(want), again)
	g.stop()
}
