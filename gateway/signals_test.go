package gateway

import (
	"io"
	"net/http"
	"testing"
	"time"

	"sluice/test/testenv"
)

func listening(c *Config) { c.Signals = true }

// herald is a shopkeeper that tells of changes.
type herald struct {
	*shopkeeper
	say  chan string   // what goes down the stream
	drop chan struct{} // ends it
}

func newHerald(t testing.TB) *herald {
	h := &herald{shopkeeper: &shopkeeper{state: "sold_out", version: 7, ttl: 1000}, say: make(chan string), drop: make(chan struct{})}
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
			case s := <-h.say:
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

func (e *edge) awaitListening(t testing.TB, up float64) {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, "the edge listens, or does not", func() bool { return e.count(t, "sluice_edge_signals_up") == up })
}

// hears says something to the edge, and waits until so many signals were heard in all.
func (e *edge) hears(t testing.TB, h *herald, text string, total float64) {
	t.Helper()
	h.say <- text
	testenv.Eventually(t, 20*time.Second, "the signal is heard", func() bool { return e.count(t, "sluice_edge_signals_total") == total })
}

// The edge's clock stands still, so nothing ends by time.
func TestWhatIsKnownEndsWithASignalOfTheSaleAlone(t *testing.T) {
	h := newHerald(t)
	e := serve(t, shop, []string{h.address()}, listening)
	e.awaitListening(t, 1)
	for round := 0.0; round < 2; round++ {
		e.learned(t, h.shopkeeper)
		before := h.purchases()
		e.hears(t, h, "event: what\ndata: {\"v\":2,\"sale\":\"drop\"}\n\ndata: {\"v\":1,\"sale\":7}\n\ndata: x\n\ndata: \n\nnonsense\n\nid: drop\n\n"+
			"event: restocked\ndata: {\"v\":1,\"sale\":\"hat\"}\n\n", 2*round+1)
		if e.buy(t, "second"); h.purchases() != before {
			t.Fatal("noise made the edge forget what it knows")
		}
		e.hears(t, h, "event: restocked\ndata: {\"v\":1,\"sale\":\"drop\"}\n\n", 2*round+2)
		if got := e.buy(t, "second"); h.purchases() != before+1 {
			t.Fatalf("after the signal, what was known before is told: %+v", got)
		}
		e.ms.Add(1)
	}
}

// A refusal that was under way when the sale changed may be one of before.
func TestRefusalThatASignalOvertakesIsNotLearned(t *testing.T) {
	h := newHerald(t)
	e := serve(t, shop, []string{h.address()}, listening)
	e.awaitListening(t, 1)
	e.learned(t, h.shopkeeper)
	e.ms.Add(1000) // what is known is over
	gate := make(chan struct{})
	h.set(func(s *shopkeeper) { s.gate = gate })
	done := make(chan struct{})
	before := h.purchases()
	go func() { defer close(done); e.buy(t, "ann") }()
	testenv.Eventually(t, 20*time.Second, "the purchase is under way", func() bool { return h.purchases() == before+1 })
	e.hears(t, h, "data: {\"v\":1,\"sale\":\"drop\"}\n\n", 1)
	h.set(func(s *shopkeeper) { s.gate = nil })
	close(gate)
	<-done
	e.ms.Add(1)
	if e.buy(t, "bob"); h.purchases() != before+2 {
		t.Error("bob was told what the backend had said before the change")
	}
}

func TestEdgeListensAgainAndElsewhere(t *testing.T) {
	a, b := newHerald(t), newHerald(t)
	e := serve(t, shop, []string{a.address(), b.address()}, listening)
	for range 4 {
		e.awaitListening(t, 1)
		select {
		case a.drop <- struct{}{}:
		case b.drop <- struct{}{}:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody is listened to")
		}
	}
	e.awaitListening(t, 1)
	if err := e.stop(); err != nil {
		t.Errorf("an edge that listens ends with %v", err)
	}
}

func TestBackendThatTellsNothingOrTooMuchDoesNoHarm(t *testing.T) {
	h := newHerald(t)
	plain := newShopkeeper(t) // says "here"
	e := serve(t, shop, []string{plain.address()}, listening)
	if got := e.buy(t, "ann").status; got != 409 {
		t.Errorf("status %d", got)
	}
	if e.count(t, "sluice_edge_signals_up") != 0 {
		t.Error("it takes any answer for signals")
	}
	e = serve(t, shop, []string{h.address()}, listening)
	e.awaitListening(t, 1)
	endless := make([]byte, 64<<10)
	for i := range endless {
		endless[i] = 'x'
	}
	h.say <- string(endless)
	e.awaitListening(t, 1)
}
