package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

func numberFromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

// Two instances of each group and two relays run; instances and relays are killed repeatedly, and the shop's endpoint
// for webhooks fails and hangs. Every group gets every event, points are exact, the shop gets each event under one id,
// nothing is pending, and only events that no consumer can handle are dead letters. make events-chaos runs it with
// 100,000 orders and twenty kills; with SLUICE_EVENTS_SLOW=n one more group handles n events per second, and the stream
// still stays within its bound.
func TestGroupsMissNoEventWhenInstancesAreKilled(t *testing.T) {
	t.Parallel()
	orders, kills := numberFromEnv(t, "SLUICE_EVENTS_ORDERS", 400), numberFromEnv(t, "SLUICE_EVENTS_KILLS", 3)
	const batch, cancelEvery, poisons = 250, 50, 5
	patience := 15*time.Minute + time.Duration(orders)*5*time.Millisecond
	begin := time.Now()
	c := newEventChaos(t, numberFromEnv(t, "SLUICE_EVENTS_SLOW", 0))
	all := storetest.Orders("s", orders)
	c.browser.subscribe(t, c.db, all)
	want := map[string]bool{}
	for i, o := range all {
		want[events.ID(o.ID, sale.StatusCreated)] = true
		if i%cancelEvery == 0 {
			want[events.ID(o.ID, sale.StatusCancelled)] = true
		}
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		for i, part := range slices.Collect(slices.Chunk(all, batch)) {
			if err := c.store.Write(t.Context(), part); err != nil {
				t.Error(err)
				return
			}
			for k := 0; k < len(part); k += cancelEvery {
				if _, _, err := c.store.CancelOrder(t.Context(), part[k].ID); err != nil {
					t.Error(err)
				}
			}
			if i < poisons && i*batch < orders {
				c.poison(i)
			}
		}
	})
	poisoned := min(poisons, (orders+batch-1)/batch)

	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	plan := planKills(kills, len(c.processes))
	killed, deadline := 0, time.Now().Add(patience)
	watch := newStreamWatch(c)
	for killed < kills || !c.done(want) {
		if time.Now().After(deadline) || t.Failed() {
			t.Fatalf("after %v and %d kills: %s", time.Since(begin).Round(time.Second), killed, c.progress(len(want)))
		}
		watch.look()
		if killed < kills {
			for _, which := range plan.due(c.handled(), len(want)) {
				c.processes[which].crash()
				killed++
				t.Logf("%v, kill %d, of process %d: %s", time.Since(begin).Round(time.Second), killed, which, c.progress(len(want)))
			}
		}
		c.hurry()
		<-pause.C
	}
	writing.Wait()
	watch.check(int64(poisoned))
	took, result := time.Since(begin).Round(time.Second), c.progress(len(want))
	c.check(all, cancelEvery, want, poisoned)
	for _, p := range c.processes {
		p.awaitUp(t)
		if code := p.end(syscall.SIGTERM); code != 0 {
			t.Errorf("SIGTERM: exit %d\n%s", code, p.output())
		}
	}
	t.Logf("%d orders, %d events for each of %d groups, %d kills in %v; %s", orders, len(want), len(chaosGroups), killed,
		took, result)
}

// killPlan holds the processes that are still to be killed, by their kind: relays, then each of chaosGroups. Each kind
// has two processes and its own pace: a kind that finishes early would otherwise be killed only when it is idle.
type killPlan struct {
	victims [][]int
	all     []int // how many each kind had
}

func planKills(kills, processes int) *killPlan {
	p := &killPlan{make([][]int, processes/2), make([]int, processes/2)}
	for i := range kills {
		which := i * 3 % processes // the first three are of three kinds, and eight in a row are all
		p.victims[which/2] = append(p.victims[which/2], which)
		p.all[which/2]++
	}
	return p
}

// due returns the processes to kill now that each kind has handled this number of all events. The kills of a kind are
// spread evenly over its work.
func (p *killPlan) due(confirmed []int, of int) (now []int) {
	for kind, n := range confirmed {
		if left := len(p.victims[kind]); left > 0 && n*(p.all[kind]+1) >= of*(p.all[kind]-left+1) {
			now = append(now, p.victims[kind][0])
			p.victims[kind] = p.victims[kind][1:]
		}
	}
	return now
}

var chaosGroups = []string{"points", "web-push", "webhooks"}

func (c *eventChaos) check(all []sale.Order, cancelEvery int, want map[string]bool, poisoned int) {
	t := c.t
	t.Helper()
	cancelled := len(want) - len(all)
	for sql, expected := range map[string]int{
		"SELECT count(*) FROM points WHERE kind = 1": len(all),
		"SELECT count(*) FROM points WHERE kind = 3": cancelled,
		"SELECT coalesce(sum(points), 0) FROM points p WHERE kind = 1 AND NOT EXISTS (SELECT 1 FROM points b WHERE " +
			"b.order_id = p.order_id AND b.kind = 3)": 19 * (len(all) - cancelled),
		"SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM points p WHERE p.order_id = o.id AND p.kind = 1 " +
			"AND p.buyer = o.buyer AND p.points = 19)": 0,
	} {
		var got int
		if err := c.db.QueryRow(t.Context(), sql).Scan(&got); err != nil || got != expected {
			t.Errorf("%s: %d, %v; want %d", sql, got, err, expected)
		}
	}
	ledger := points.NewStore(c.store.DB)
	for i := 0; i < len(all); i += max(1, len(all)/200) { // through the API of the buyers
		points := int64(19)
		if i%cancelEvery == 0 {
			points = 0
		}
		if got, err := ledger.Balance(t.Context(), all[i].Buyer); err != nil || got != points {
			t.Errorf("%s has %d points, %v; want %d", all[i].Buyer, got, err, points)
		}
	}
	for name, box := range map[string]*inbox{"web-push": c.push, "slow": c.slow} {
		if !slices.Contains(c.names, name) {
			continue
		}
		if box.clash != "" {
			t.Errorf("%s: one id stands for two messages: %s", name, box.clash)
		}
		for what := range box.seen {
			if !want[what] {
				t.Fatalf("%s: event %q never happened", name, what)
			}
		}
		if len(box.seen) != len(want) {
			t.Errorf("%s: %d events, want %d", name, len(box.seen), len(want))
		}
	}
	c.checkShop(want)
	var expected []string
	for i := range poisoned {
		expected = append(expected, fmt.Sprintf("poison-%d", i))
	}
	for _, group := range c.names {
		letters, err := events.NewStore(c.store.DB).
			DeadLetters(t.Context(), events.DeadLetterQuery{Group: group, Limit: 1000})
		var dead []string
		for _, l := range letters {
			dead = append(dead, l.EventID)
		}
		if slices.Sort(dead); err != nil || !slices.Equal(dead, expected) {
			t.Errorf("group %s: dead are %v, %v; want %v", group, dead, err, expected)
		}
	}
}

// checkShop verifies that the shop got each event under one id, and nothing else.
func (c *eventChaos) checkShop(want map[string]bool) {
	t := c.t
	t.Helper()
	e, err := webhook.NewStore(c.store.DB).Show(t.Context(), c.endpoint)
	if err != nil || e.Failed != 0 || e.Waiting != 0 {
		t.Errorf("%d webhooks have failed and %d wait, %v; want none", e.Failed, e.Waiting, err)
	}
	c.shop.mu.Lock()
	defer c.shop.mu.Unlock()
	if c.shop.forged != 0 || c.shop.clash != "" || len(c.shop.early) != 0 {
		t.Errorf("shop: %d forged; one id for two messages: %q; before their orders were created: %v", c.shop.forged,
			c.shop.clash, c.shop.early)
	}
	confirmed := map[string]bool{}
	for id := range c.shop.took {
		var m struct {
			Type string
			Data struct {
				OrderID string `json:"order_id"`
			}
		}
		if err := json.Unmarshal([]byte(c.shop.bodies[id]), &m); err != nil {
			t.Fatalf("webhook %s is %.200q: %v", id, c.shop.bodies[id], err)
		}
		what := m.Data.OrderID + "." + strings.TrimPrefix(m.Type, "order.")
		if confirmed[what] || !want[what] {
			t.Fatalf("shop: event %q arrived under two ids, or never happened (%s)", what, id)
		}
		confirmed[what] = true
	}
	if len(confirmed) != len(want) {
		t.Errorf("shop: %d events, want %d", len(confirmed), len(want))
	}
}
