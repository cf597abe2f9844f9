package nginx

import (
	bigendian "encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

const dropOrders = "/v1/sales/drop/orders"

// shop is a backend behind an edge, which counts what reaches it.
type shop struct {
	*backendServer
	edge *edge
}

func (s *shop) purchases() int { return s.count("POST", "/orders") }
func (s *shop) lists() int     { return s.count("GET", "/holders") }

func (s *shop) count(method, end string) (n int) {
	for _, r := range s.requests() {
		path, _, _ := strings.Cut(r.path, "?")
		if r.method == method && strings.HasSuffix(path, end) {
			n++
		}
	}
	return n
}

func (s *shop) buy(t *testing.T, buyer string) answer {
	t.Helper()
	return s.edge.do("POST", dropOrders, "Authorization", signed(t, buyer))
}

// fromMemory sends a purchase. It returns the response, and whether no purchase reached the backend.
func (s *shop) fromMemory(send func() answer) (answer, bool) {
	before := s.purchases()
	a := send()
	return a, s.purchases() == before
}

// awaitCached sends purchases of a buyer without an order until the edge answers from memory, and returns that answer.
func (s *shop) awaitCached(t *testing.T) answer {
	t.Helper()
	var a answer
	testenv.Eventually(t, time.Minute, "the edge answers from memory", func() bool {
		var cached bool
		a, cached = s.fromMemory(func() answer { return s.buy(t, "stranger") })
		return cached
	})
	return a
}

// madeShop is a backend whose answers a test sets. Its fields are guarded by mu.
type madeShop struct {
	*shop
	mu       sync.Mutex
	header   string        // Sluice-Sale of its refusals; "" accepts
	took     time.Duration // how long it takes to answer a purchase
	status   int           // of a refusal; 0 is 409
	holders  []uint32
	listHead string // of the list; "" is the right one
	listBody []byte // nil is the right one
	noList   bool
	listTook time.Duration // how long it takes to answer for the list
	accepted int           // of the list
	arrived  []time.Time   // purchases
}

func startMadeShop(t *testing.T, policy string, set func(*madeShop)) *madeShop {
	t.Helper()
	s := &madeShop{header: "drop;state=sold_out;version=7;ttl=1000;holders=0"}
	if set != nil {
		set(s)
	}
	backend := startBackend(t, s.answer)
	s.shop = &shop{backend, startEdge(t, policy, nil, backend.addr)}
	return s
}

func (s *madeShop) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *madeShop) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	header, took, status, listTook := s.header, s.took, s.status, s.listTook
	s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/holders") {
		if listTook > 0 {
			<-time.After(listTook)
		}
		s.list(w, r)
		return
	}
	s.set(func() { s.arrived = append(s.arrived, time.Now()) })
	if took > 0 {
		<-time.After(took)
	}
	switch {
	case header == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		w.Header().Set("Sluice-Sale", header)
		w.WriteHeader(max(status, http.StatusConflict))
	}
}

func (s *madeShop) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noList || r.URL.Path != "/.sluice/sales/drop/holders" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	head, body := s.listHead, s.listBody
	if head == "" {
		head = fmt.Sprintf("drop;accepted=%d;count=%d", s.accepted, len(s.holders))
	}
	if body == nil {
		body = listOf(s.holders)
	}
	w.Header().Set("Sluice-Holders", head)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body)
}

// hold makes these buyers the holders, and the list complete for as many orders.
func (s *madeShop) hold(buyers ...string) {
	s.holders, s.accepted = sums(buyers...), len(buyers)
}

func sums(buyers ...string) []uint32 {
	list := make([]uint32, len(buyers))
	for i, buyer := range buyers {
		list[i] = crc32.ChecksumIEEE([]byte(buyer))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func listOf(sums []uint32) []byte {
	body := make([]byte, 0, 4*len(sums))
	for _, sum := range sums {
		body = bigendian.BigEndian.AppendUint32(body, sum)
	}
	return body
}
