package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// adminActor is the admin during the sale: it pauses and resumes, restocks, retries and cancels dead orders, and
// cancels rows. It repeats a command until a backend answers, because a command with a lost answer may have been
// executed.
type adminActor struct {
	stage    *stage
	history  *History
	random   *rand.Rand
	at       int // the backend of the next request
	sales    []string
	restocks int
	done     map[string]int // commands that were answered
	wrong    []string
}

func newAdmin(s *stage, h *History, seed uint64) *adminActor {
	return &adminActor{stage: s, history: h, random: rand.New(rand.NewPCG(seed, 2)), done: map[string]int{}}
}

// commandTimeout covers a full disk, a rebuild of Redis, and other load of the machine.
const commandTimeout = 3 * time.Minute

// persist retries until a backend accepts or rejects the command. It has a timeout of its own, so that the outcome of a
// command does not depend on the end of the run.
func (o *adminActor) persist(method, path, body, key string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	var last answer
	for ctx.Err() == nil {
		one, done := context.WithTimeout(ctx, 5*time.Second)
		a := call(one, method, o.stage.backends[o.at%len(o.stage.backends)].admin+path, adminToken, body, key)
		done()
		if a.status != 0 && a.status < 500 {
			return a
		}
		last = a
		o.at++
		time.Sleep(100 * time.Millisecond)
	}
	o.wrong = append(o.wrong, fmt.Sprintf(
		"%s %s was not answered in %s; the last response: %d %s", method, path, commandTimeout, last.status, last.body,
	))
	return answer{}
}

// create creates an open sale.
func (o *adminActor) create(id string, offer Offer) {
	o.history.offer(id, offer)
	a := o.persist("POST", "/admin/v1/sales", fmt.Sprintf(
		`{"id":%q,"title":"Thing","stock":%d,"price":{"amount":1999,"currency":"EUR"},"per_buyer":%d,"spread":%d,"opens_at":%q}`,
		id,
		offer.Stock,
		offer.PerBuyer,
		max(offer.Spread, 1),
		time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
	), "")
	if a.status != 201 && a.status != 409 { // 409: created by a call with a lost answer
		o.wrong = append(o.wrong, fmt.Sprintf("create sale: %d %s", a.status, a.body))
	}
	o.sales = append(o.sales, id)
	o.done["sale created"]++
}

// work sends one command after the other until ctx ends.
func (o *adminActor) work(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		sale := o.sales[max(0, len(o.sales)-1-o.random.IntN(2))] // the latest ones still sell
		switch o.random.IntN(8) {
		case 0:
			o.expect("sale paused", "POST", "/admin/v1/sales/"+sale+"/pause", "", "")
			pause(ctx, time.Duration(200+o.random.IntN(800))*time.Millisecond)
			o.expect("sale resumed", "POST", "/admin/v1/sales/"+sale+"/resume", "", "")
		case 1, 2:
			o.restocks++
			units := 1 + o.random.Int64N(100)
			if o.expect("sale restocked", "POST", "/admin/v1/sales/"+sale+"/restock",
				fmt.Sprintf(`{"add":%d}`, units), fmt.Sprint("restock-", o.restocks)) {
				o.history.restocked(sale, units)
			}
		case 3, 4:
			if id, ok := o.history.some(); ok {
				o.history.cancels(id)
				a := o.persist("POST", "/admin/v1/orders/"+id+"/cancel", `{"reason":"chaos"}`, "")
				o.note("row cancelled", a, 404) // still queued, or dead
			}
		default:
			o.settleDead(ctx)
		}
		pause(ctx, time.Duration(o.random.Int64N(int64(2*every))))
	}
}

// settleDead retries or cancels one dead order.
func (o *adminActor) settleDead(ctx context.Context) {
	a := o.persist("GET", "/admin/v1/dead?limit=50", "", "")
	var page struct {
		Dead []struct {
			OrderID string `json:"order_id"`
			SaleID  string `json:"sale_id"`
			Buyer   string `json:"buyer"`
		}
	}
	if json.Unmarshal(a.body, &page) != nil || len(page.Dead) == 0 {
		return
	}
	d := page.Dead[o.random.IntN(len(page.Dead))]
	switch o.random.IntN(3) {
	case 0:
		o.history.cancels(d.OrderID)
		o.note("dead cancelled", o.persist("POST", "/admin/v1/dead/"+d.OrderID+"/cancel", `{"reason":"chaos"}`, ""), 404, 409)
	case 1: // remove the cause first
		for ctx.Err() == nil && o.stage.disk.fix(ctx, d.Buyer) != nil {
			pause(ctx, 100*time.Millisecond)
		}
		fallthrough
	case 2:
		o.note("dead retried", o.persist("POST", "/admin/v1/dead/"+d.OrderID+"/retry", "", ""), 404, 409)
	}
}

func (o *adminActor) expect(what, method, path, body, key string) bool {
	return o.note(what, o.persist(method, path, body, key))
}

// note counts a command that succeeded. Any status that is neither 2xx nor allowed is a violation.
func (o *adminActor) note(what string, a answer, allowed ...int) bool {
	if a.status/100 == 2 {
		o.done[what]++
		return true
	}
	for _, status := range allowed {
		if a.status == status {
			return false
		}
	}
	if a.status != 0 {
		o.wrong = append(o.wrong, fmt.Sprintf("%s: %d %s", what, a.status, a.body))
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// audit returns whether the product's own audit of a sale balances.
func (o *adminActor) audit(saleID string) bool {
	a := o.persist("GET", "/admin/v1/sales/"+saleID+"/audit", "", "")
	var report struct{ Balanced bool }
	return json.Unmarshal(a.body, &report) == nil && report.Balanced
}
