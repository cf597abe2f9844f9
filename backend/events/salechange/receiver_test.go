package salechange_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/events/salechange"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

var quiet = slog.New(slog.DiscardHandler)

// house sells, and receives the notifications.
type house struct {
	*testing.T
	client  redisconn.Client
	space   keyspace.Space
	stock   *admission.Stock
	admit   *admission.Admitter
	hub     salechange.Hub
	metrics *prometheus.Registry
}

// newHouse sells over one client and receives over another.
func newHouse(t *testing.T, sells, receives redisconn.Client) *house {
	h := &house{T: t, client: sells, space: keyspace.Space{Shards: 2}, metrics: prometheus.NewRegistry()}
	h.stock = admission.NewStock(admission.StockConfig{Client: sells, Space: h.space})
	h.admit = admissiontest.NewAdmitter(t, sells, h.space)
	source := func(keyspace.Shard) redisconn.Client { return receives }
	testenv.Run(t, salechange.NewReceiver(source, h.space, &h.hub, h.metrics, quiet).Run)
	return h
}

const upMetric = "sluice_sale_notifications_up"

func (h *house) awaitUp(up string) {
	h.Helper()
	testenv.Eventually(h, 20*time.Second, "the receiver is "+up, func() bool {
		families, _ := h.metrics.Gather()
		for _, f := range families {
			if f.GetName() == upMetric {
				return fmt.Sprint(f.GetMetric()[0].GetGauge().GetValue()) == up
			}
		}
		return false
	})
}

func (h *house) buy(saleID, buyer string) sale.Outcome {
	h.Helper()
	d, err := h.admit.Admit(h.Context(),
		admission.Request{SaleID: saleID, Buyer: buyer, Key: saleID, KeyTTL: time.Minute, Fingerprint: "f"})
	if err != nil {
		h.Fatal(err)
	}
	return d.Outcome
}

// next returns the next notification of a listener.
func (h *house) next(l *salechange.Listener) salechange.Notification {
	h.Helper()
	select {
	case <-l.Wake():
	case <-time.After(time.Minute):
		h.Fatalf("no notification; so far %d opened, %d left, %d sold_out, %d restocked, %d paused, %d closed, %d unknown",
			h.count("opened"), h.count("left"), h.count("sold_out"), h.count("restocked"), h.count("paused"), h.count("closed"),
			h.count("unknown"))
	}
	return l.Take()[0]
}

func definition(id string, stock, version int64, to sale.Switch) sale.Sale {
	return sale.Sale{
		ID:       id,
		Title:    "T",
		Price:    sale.Price{Amount: 1, Currency: "EUR"},
		Stock:    stock,
		PerBuyer: 1,
		OpensAt:  time.UnixMilli(1),
		Switch:   to,
		Version:  version,
	}
}

func noOrders(context.Context, spread.Part, func(sale.Order) error) error { return nil }

func TestEveryChangeOfASaleIsReceivedInOrder(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"miniredis": func(t *testing.T) string { return "redis://" + miniredis.RunT(t).Addr() },
		"redis":     func(t *testing.T) string { return testenv.StartRedis(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			h := newHouse(t, testenv.OpenPatient(t, at), testenv.OpenPatient(t, at))
			h.awaitUp("1")
			for _, id := range []string{"shoe", "hat.2", "a-b_c", "sale"} { // of both shards
				l := h.hub.Listen(id)
				defer l.Close()
				step := func(want salechange.Type, left int64, do func() error) {
					t.Helper()
					if err := do(); err != nil {
						t.Fatal(err)
					}
					if got := h.next(l); got != (salechange.Notification{Type: want, SaleID: id, Left: left}) {
						t.Errorf("%s: received %+v, want %s with %d left", id, got, want, left)
					}
				}
				sync := func(stock, version int64, to sale.Switch) func() error {
					return func() error { return h.stock.Update(t.Context(), definition(id, stock, version, to)) }
				}
				buys := func(buyer string) func() error { return func() error { h.buy(id, buyer); return nil } }
				step(salechange.Opened, 2,
					func() error { return h.stock.Load(t.Context(), definition(id, 2, 1, sale.On), noOrders) })
				step(salechange.Left, 1, buys("ann"))
				step(salechange.SoldOut, 0, buys("bob"))
				for i := range 100 { // these publish nothing
					if o := h.buy(id, fmt.Sprint("late", i)); o != sale.SoldOut {
						t.Fatal(o)
					}
				}
				step(salechange.Restocked, 1, sync(3, 2, sale.On))
				step(salechange.Paused, 1, sync(3, 3, sale.Paused))
				if err := sync(3, 3, sale.Paused)(); err != nil { // again: nothing changes
					t.Fatal(err)
				}
				step(salechange.Opened, 1, sync(3, 4, sale.On))
				step(salechange.SoldOut, 0, buys("cid"))
				d, err := h.admit.Admit(t.Context(),
					admission.Request{SaleID: id, Buyer: "bob", Key: "other", KeyTTL: time.Minute, Fingerprint: "f"})
				if err != nil || d.Outcome != sale.AlreadyBought {
					t.Fatal(d, err)
				}
				bobs := []sale.Order{{ID: d.OrderID, SaleID: id, Buyer: "bob"}}
				giveBack := func() error { _, err := h.stock.ReturnUnits(t.Context(), spread.Part{SaleID: id}, bobs); return err }
				step(salechange.Restocked, 1, giveBack)
				if err := giveBack(); err != nil { // again
					t.Fatal(err)
				}
				step(salechange.Closed, 1, sync(3, 5, sale.Closed))
				if got := l.Take(); len(got) != 0 {
					t.Errorf("%s: also received %v", id, got)
				}
			}
		})
	}
}

func TestUnitsLeftArePublishedAtMostFourTimesASecond(t *testing.T) {
	at := "redis://" + miniredis.RunT(t).Addr()
	h := newHouse(t, testenv.OpenPatient(t, at), testenv.OpenPatient(t, at))
	if err := h.stock.Load(t.Context(), definition("s", 5000, 1, sale.On), noOrders); err != nil {
		t.Fatal(err)
	}
	h.awaitUp("1")
	start := time.Now()
	for i := range 500 {
		h.buy("s", fmt.Sprint(i))
	}
	took := time.Since(start)
	if err := h.stock.Update(t.Context(), definition("s", 5000, 2, sale.Paused)); err != nil { // comes last
		t.Fatal(err)
	}
	count := func(kind string) int { return h.count(kind) }
	testenv.Eventually(t, time.Minute, "the pause is received", func() bool { return count("paused") == 1 })
	if got, most := count("left"), int(took/(250*time.Millisecond))+1; got < 1 || got > most {
		t.Errorf("%d notifications of the units left within %v, want 1 to %d", got, took, most)
	}
}

// count returns the number of received notifications of a type.
func (h *house) count(kind string) (n int) {
	families, _ := h.metrics.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "sluice_sale_notifications_received_total" && m.GetLabel()[0].GetValue() == kind {
				n = int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

func TestReceiverReconnectsAndIgnoresUnknownMessages(t *testing.T) {
	r := testenv.StartRedis(t)
	h := newHouse(t, r.Client(), testenv.OpenPatient(t, r.URL))
	l := h.hub.Listen("s")
	h.awaitUp("1")
	for range 2 {
		for _, noise := range []string{"", "x", `{"v":9,"type":"left","sale":"s"}`, `{"v":1,"type":"what","sale":"s"}`} {
			h.client.Publish(t.Context(), h.space.ShardOf("s").SaleNotifications(), noise)
		}
		h.client.Publish(t.Context(), h.space.ShardOf("s").SaleNotifications(), `{"v":1,"type":"paused","sale":"s"}`)
		if got := h.next(l); got.Type != salechange.Paused {
			t.Errorf("received %v", got)
		}
		r.Kill()
		h.awaitUp("0")
		r.Start()
		h.awaitUp("1")
	}
	if got := h.count("unknown"); got != 8 {
		t.Errorf("%d unknown messages, want 8", got)
	}
}

// A Redis user without the right to publish sells as before; one without the right to subscribe gets no notifications.
func TestSalesDoNotNeedTheRightToPublish(t *testing.T) {
	r := testenv.StartRedis(t)
	admin := r.Client()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels").
		Err(); err != nil {
		t.Fatal(err)
	}
	mute := testenv.OpenPatient(t, "redis://mute:pw@"+r.Addr+"/0")
	h := newHouse(t, mute, testenv.OpenPatient(t, r.URL))
	deaf := newHouse(t, r.Client(), mute)
	h.awaitUp("1")
	deaf.awaitUp("0")
	if err := h.stock.Load(t.Context(), definition("s", 1, 1, sale.On), noOrders); err != nil {
		t.Fatal(err)
	}
	if a, b := h.buy("s", "ann"), h.buy("s", "bob"); a != sale.Accepted || b != sale.SoldOut {
		t.Errorf("ann gets %v and bob %v", a, b)
	}
	if err := h.stock.Update(t.Context(), definition("s", 2, 2, sale.On)); err != nil {
		t.Fatal(err)
	}
	v, err := h.stock.View(t.Context(), "s")
	if err != nil || v.Left != 1 || v.Accepted != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	if d, err := h.admit.Admit(t.Context(),
		admission.Request{SaleID: "s", Buyer: "ann", Key: "again", KeyTTL: time.Minute, Fingerprint: "f"}); err != nil ||
		d.Outcome != sale.AlreadyBought {
		t.Errorf("%+v, %v", d, err)
	} else if _, err := h.stock.ReturnUnits(t.Context(), spread.Part{SaleID: "s"},
		[]sale.Order{{ID: d.OrderID, SaleID: "s", Buyer: "ann"}}); err != nil {
		t.Error(err)
	}
	if n := h.count("sold_out") + h.count("opened") + h.count("restocked"); n != 0 {
		t.Errorf("%d notifications arrived from a user without the right to publish", n)
	}
}
