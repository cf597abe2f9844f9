package gateway

import (
	"io"
	"net/http"
	"testing"
	"time"

	"sluice/test/testenv"
)

func notified(c *Config) { c.SaleNotifications = true }

// notifier is a saleBackend that publishes sale notifications.
type notifier struct {
	*saleBackend
	send chan string   // text for the stream
	drop chan struct{} // ends the stream
}

func newNotifier(t testing.TB) *notifier {
	h := &notifier{
		saleBackend: &saleBackend{state: "sold_out", version: 7, ttl: 1000},
		send:        make(chan string),
		drop:        make(chan struct{}),
	}
	h.backend = newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.sluice/signals" {
			h.answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ":\n\n")
		for {
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case s := <-h.send:
				_, _ = io.WriteString(w, s)
			case <-h.drop:
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	return h
}

func (e *edge) awaitConnected(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the edge is connected",
		func() bool { return e.count(t, "sluice_edge_sale_notifications_up") == 1 })
}

// publish sends text to the edge, and waits until it has counted the given number of notifications.
func (e *edge) publish(t testing.TB, h *notifier, text string, total float64) {
	t.Helper()
	h.send <- text
	testenv.Eventually(t, time.Minute, "the notification is received",
		func() bool { return e.count(t, "sluice_edge_sale_notifications_total") == total })
}

// The clock of the edge does not move, so that nothing expires.
func TestNotificationInvalidatesTheSale(t *testing.T) {
	h := newNotifier(t)
	e := serve(t, shop, []string{h.address()}, notified)
	e.awaitConnected(t)
	for round := 0.0; round < 2; round++ {
		e.awaitCached(t, h.saleBackend)
		before := h.purchases()
		e.publish(
			t,
			h,
			"event: what\ndata: {\"v\":2,\"sale\":\"drop\"}\n\ndata: {\"v\":1,\"sale\":7}\n\ndata: x\n\ndata: \n\n"+
				"nonsense\n\nid: drop\n\n"+
				"event: restocked\ndata: {\"v\":1,\"sale\":\"hat\"}\n\n",
			2*round+1,
		)
		if e.buy(t, "second"); h.purchases() != before {
			t.Fatal("invalid or unrelated notifications invalidated the sale")
		}
		e.publish(t, h, "event: restocked\ndata: {\"v\":1,\"sale\":\"drop\"}\n\n", 2*round+2)
		if got := e.buy(t, "second"); h.purchases() != before+1 {
			t.Fatalf("the notification did not invalidate the sale: %+v", got)
		}
		e.ms.Add(1)
	}
}

// A refusal in flight during a change may not include the change.
func TestRefusalInFlightDuringANotificationIsNotStored(t *testing.T) {
	h := newNotifier(t)
	e := serve(t, shop, []string{h.address()}, notified)
	e.awaitConnected(t)
	e.awaitCached(t, h.saleBackend)
	e.ms.Add(1000) // the record expires
	gate := make(chan struct{})
	h.set(func(s *saleBackend) { s.gate = gate })
	done := make(chan struct{})
	before := h.purchases()
	go func() { defer close(done); e.buy(t, "ann") }()
	testenv.Eventually(t, time.Minute, "the purchase is in progress", func() bool { return h.purchases() == before+1 })
	e.publish(t, h, "data: {\"v\":1,\"sale\":\"drop\"}\n\n", 1)
	h.set(func(s *saleBackend) { s.gate = nil })
	close(gate)
	<-done
	e.ms.Add(1)
	if e.buy(t, "bob"); h.purchases() != before+2 {
		t.Error("bob got the refusal from before the change")
	}
}

func TestEdgeReconnectsToAnyBackend(t *testing.T) {
	a, b := newNotifier(t), newNotifier(t)
	e := serve(t, shop, []string{a.address(), b.address()}, notified)
	for range 4 {
		e.awaitConnected(t)
		select {
		case a.drop <- struct{}{}:
		case b.drop <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("the edge is connected to no backend")
		}
	}
	e.awaitConnected(t)
	if err := e.stop(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestInvalidNotificationStreamIsIgnored(t *testing.T) {
	h := newNotifier(t)
	plain := newSaleBackend(t) // responds with "here"
	e := serve(t, shop, []string{plain.address()}, notified)
	if got := e.buy(t, "ann").status; got != 409 {
		t.Errorf("status %d", got)
	}
	if e.count(t, "sluice_edge_sale_notifications_up") != 0 {
		t.Error("a response of another type is accepted as notifications")
	}
	e = serve(t, shop, []string{h.address()}, notified)
	e.awaitConnected(t)
	endless := make([]byte, 64<<10)
	for i := range endless {
		endless[i] = 'x'
	}
	h.send <- string(endless)
	e.awaitConnected(t)
}
