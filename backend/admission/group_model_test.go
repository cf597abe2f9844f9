package admission

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// modelSale decides purchases one at a time, with maps only.
type modelSale struct {
	left, serial int64
	perBuyer     int
	room         int // limit of ready messages; none is taken in this test
	sw           sale.Switch
	byKey        map[string]modelRequest
	byBuyer      map[string][]sale.OrderID // by slot; 0 for a returned order
	returned     map[string][]sale.OrderID // by buyer, if their requests have no dedup key
	queue        []string
}

type modelRequest struct {
	buyer, key, fingerprint string
	ttl                     time.Duration
	id                      sale.OrderID
}

func modelKey(r Request) string { return fmt.Sprintf("%s\x00%s\x00%d", r.Buyer, r.Key, r.KeyTTL) }

func (m *modelSale) decide(r Request, id sale.OrderID) Decision {
	key := modelKey(r)
	if was, ok := m.byKey[key]; ok {
		switch {
		case was.id == id:
			return Decision{Outcome: sale.Accepted, OrderID: id}
		case r.KeyTTL > 0 && was.fingerprint != r.Fingerprint:
			return Decision{Outcome: sale.KeyReused}
		}
		return Decision{Outcome: sale.Replayed, OrderID: was.id}
	}
	held, slot, count, latest := m.byBuyer[r.Buyer], -1, 0, sale.OrderID(0)
	for i, h := range held {
		switch {
		case h == id:
			return Decision{Outcome: sale.Accepted, OrderID: id}
		case h > 0:
			count, latest = count+1, h
		case slot < 0:
			slot = i
		}
	}
	switch {
	case count >= m.perBuyer:
		return Decision{Outcome: sale.AlreadyBought, OrderID: latest}
	case m.sw == sale.Closed:
		return Decision{Outcome: sale.SaleClosed, Version: 1, Accepted: m.serial}
	case m.sw == sale.Paused:
		return Decision{Outcome: sale.SalePaused, Version: 1, Accepted: m.serial}
	case m.left == 0:
		return Decision{Outcome: sale.SoldOut, Version: 1, Accepted: m.serial}
	case len(m.queue) >= m.room:
		return Decision{Outcome: sale.QueueFull}
	}
	m.left--
	m.serial++
	m.byKey[key] = modelRequest{r.Buyer, r.Key, r.Fingerprint, r.KeyTTL, id}
	if slot < 0 {
		slot, held = len(held), append(held, 0)
	}
	held[slot] = id
	m.byBuyer[r.Buyer] = held
	m.queue = append(m.queue, fmt.Sprintf("%d s %d %d %s", id, slot+1, m.serial, r.Buyer))
	return Decision{Outcome: sale.Accepted, OrderID: id}
}

// returnUnit returns the unit of an order, if its buyer holds it.
func (m *modelSale) returnUnit(buyer string, id sale.OrderID) {
	slot := slices.Index(m.byBuyer[buyer], id)
	if slot < 0 {
		return
	}
	m.left++
	m.byBuyer[buyer][slot] = 0
	if m.requestOf(id) != "" {
		m.returned[buyer] = append(m.returned[buyer], id)
	}
	for held := m.byBuyer[buyer]; len(held) > 0 && held[len(held)-1] == 0; m.byBuyer[buyer] = held {
		held = held[:len(held)-1]
	}
}

// requestOf returns the request that the slots hold with an order, with a colon before it, or nothing.
func (m *modelSale) requestOf(id sale.OrderID) string {
	for _, q := range m.byKey {
		if q.id == id && q.ttl == 0 {
			return ":" + keyspace.Request(q.key)
		}
	}
	return ""
}

// A group decides like single requests in the same order. A group that runs twice, after a lost reply, gets the same
// decisions and takes no further unit.
func TestGroupDecidesLikeSingleRequests(t *testing.T) {
	onEachRedis(t, groupAgainstModel)
}

func groupAgainstModel(t *testing.T, c redisconn.Client) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		flushAll(ctx, c)
		m := &modelSale{
			left: rapid.Int64Range(0, 8).Draw(t, "stock"), perBuyer: rapid.IntRange(1, 3).Draw(t, "per buyer"),
			room:  rapid.SampledFrom([]int{100, 100, 6, 2, 1}).Draw(t, "room"),
			sw:    rapid.SampledFrom([]sale.Switch{sale.On, sale.On, sale.On, sale.Paused, sale.Closed}).Draw(t, "switch"),
			byKey: map[string]modelRequest{}, byBuyer: map[string][]sale.OrderID{}, returned: map[string][]sale.OrderID{},
		}
		h := newShop(c)
		h.Admitter.cfg.MaxReady = int64(m.room)
		def := onSale("s", m.left, m.perBuyer)
		def.Switch = m.sw
		if err := h.Load(ctx, def, none); err != nil {
			t.Fatal(err)
		}
		id := sale.OrderID(1 << 62)
		buyers := []string{"ann", "bob", "c d", "1,2"}
		for range rapid.IntRange(1, 4).Draw(t, "groups") {
			if id > 1<<62 && rapid.Bool().Draw(t, "return") { // of an order that may exist
				o := sale.Order{
					ID:    sale.OrderID(rapid.Int64Range(1<<62+1, int64(id)).Draw(t, "order")),
					Buyer: rapid.SampledFrom(buyers).Draw(t, "of"),
				}
				if _, err := h.ReturnUnits(ctx, spread.Part{SaleID: "s"}, []sale.Order{o}); err != nil {
					t.Fatal(err)
				}
				m.returnUnit(o.Buyer, o.ID)
			}
			var group []*waiter
			var want []Decision
			for range rapid.IntRange(1, 7).Draw(t, "requests") {
				id++
				q := Request{
					SaleID: "s", KeyTTL: rapid.SampledFrom([]time.Duration{time.Minute, 0}).Draw(t, "lifetime"),
					Buyer:       rapid.SampledFrom(buyers).Draw(t, "buyer"),
					Key:         rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "key"),
					Fingerprint: rapid.SampledFrom([]string{"f", "f", "f", "g"}).Draw(t, "fingerprint"),
				}
				group = append(group, &waiter{request: q, id: id})
				want = append(want, m.decide(q, id))
			}
			runs := rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "runs")
			for range runs {
				h.runGroup(ctx, spread.Part{SaleID: "s"}, group)
			}
			for i, w := range group {
				if runs > 1 { // the second run counts the orders of the first
					want[i].Accepted = w.decision.Accepted
				}
				if w.err != nil || w.decision != want[i] {
					t.Fatalf("request %d, %+v: %+v, %v, want %+v", i, w.request, w.decision, w.err, want[i])
				}
			}
		}
		m.compare(t, c)
	})
}

func (m *modelSale) compare(t *rapid.T, c redisconn.Client) {
	ctx := context.Background()
	queue := c.LRange(ctx, shard.Ready(), 0, -1).Val()
	for i, j := 0, len(queue)-1; i < j; i, j = i+1, j-1 {
		queue[i], queue[j] = queue[j], queue[i]
	}
	if got, want := strings.Join(queue, "\n"), strings.Join(m.queue, "\n"); got != want {
		t.Fatalf("the queue holds\n%s\nwant\n%s", got, want)
	}
	if got := c.Get(ctx, shard.Stock("s")).Val(); got != fmt.Sprint(m.left) {
		t.Fatalf("%s units left, want %d", got, m.left)
	}
	held := c.HGetAll(ctx, shard.Buyers("s")).Val()
	var got, want []string
	for buyer, slots := range held {
		got = append(got, buyer+"="+slots)
	}
	for buyer, ids := range m.byBuyer {
		slots := make([]string, len(ids))
		for i, id := range ids {
			if id > 0 {
				slots[i] = id.String() + m.requestOf(id)
			}
		}
		text := strings.Join(slots, ",")
		for _, id := range m.returned[buyer] {
			text += ";" + id.String() + m.requestOf(id)
		}
		want = append(want, buyer+"="+text)
	}
	sort.Strings(got)
	sort.Strings(want)
	if strings.Join(got, ";") != strings.Join(want, ";") {
		t.Fatalf("slots %v, want %v", got, want)
	}
	for _, q := range m.byKey {
		want := q.fingerprint + " " + q.id.String()
		if got := c.Get(ctx, shard.Dedup(q.buyer, q.key)).Val(); q.ttl > 0 && got != want {
			t.Fatalf("request key of %s is %q, want %q", q.buyer, got, want)
		}
	}
	if n := c.LLen(ctx, shard.Wake()).Val(); n != int64(min(1, len(m.queue))) {
		t.Fatalf("%d wake tokens for %d orders", n, len(m.queue))
	}
}
