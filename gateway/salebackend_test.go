package gateway

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/problem"
	"sluice/test/testenv"
)

// saleBackend is a backend with one sale, named drop.
type saleBackend struct {
	*backend
	mu       sync.Mutex
	state    string // "open" sells
	version  int
	serial   int
	holders  []string
	ttl      int
	header   map[string]string // additional headers of a refusal
	listings int               // requests for the bypass list
	noList   bool
	status   int // of every purchase, if not 0
	gate     chan struct{}
}

func newSaleBackend(t testing.TB) *saleBackend {
	s := &saleBackend{state: "sold_out", version: 7, ttl: 1000}
	s.backend = newBackend(t, s.answer)
	return s
}

func (s *saleBackend) set(change func(*saleBackend)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// purchases returns the number of purchases that reached the backend.
func (s *saleBackend) purchases() (n int) {
	for _, r := range s.requests() {
		if r.method == http.MethodPost {
			n++
		}
	}
	return n
}

func (s *saleBackend) lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listings
}

func (s *saleBackend) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil && r.Method == http.MethodPost {
		<-gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == "/.sluice/sales/drop/holders":
		s.list(w)
	case r.Method != http.MethodPost:
		_, _ = io.WriteString(w, "here")
	case s.status != 0:
		w.Header().Set("Content-Type", problem.ContentType)
		w.WriteHeader(s.status)
	case slices.Contains(s.holders, bearerName(r)):
		d := problem.New(problem.AlreadyBought, "You have bought as much as one buyer may.")
		d.OrderID = "42"
		w.Header().Set("Content-Type", problem.ContentType)
		w.WriteHeader(d.Status)
		_, _ = w.Write(d.Body())
	case s.state == "open":
		s.serial++
		s.holders = append(s.holders, bearerName(r))
		w.WriteHeader(http.StatusAccepted)
	default:
		s.refuse(w)
	}
}

// bearerName returns the subject of the request's token.
func bearerName(r *http.Request) string {
	_, raw, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	name, _ := shopKey.Verify(raw)
	return name
}

var opening = time.Now().Add(90 * time.Second).Truncate(time.Millisecond)

func (s *saleBackend) refuse(w http.ResponseWriter) {
	d := map[string]problem.Details{
		"sold_out":  problem.New(problem.SoldOut, "Everything is sold."),
		"scheduled": problem.New(problem.SaleNotOpen, "The sale has not begun."),
		"paused":    problem.New(problem.SalePaused, "The sale is paused."),
		"closed":    problem.New(problem.SaleClosed, "The sale is closed."),
	}[s.state]
	h := w.Header()
	h.Set("Sluice-Sale",
		fmt.Sprintf("drop;state=%s;version=%d;ttl=%d;holders=%d", s.state, s.version, s.ttl, s.serial))
	h.Set("Content-Type", problem.ContentType)
	h.Set("Cache-Control", "no-store")
	if s.state == "scheduled" {
		d.OpensAt = opening.UTC().Format(time.RFC3339Nano)
		h.Set("Retry-After", "91")
		h.Set("Sluice-Sale", fmt.Sprint(h.Get("Sluice-Sale"), ";opens=", opening.UnixMilli()))
	}
	for name, value := range s.header {
		h.Add(name, value)
	}
	w.WriteHeader(d.Status)
	_, _ = w.Write(d.Body())
}

func (s *saleBackend) list(w http.ResponseWriter) {
	s.listings++
	if s.noList {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	sums := make([]uint32, len(s.holders))
	for i, name := range s.holders {
		sums[i] = crc32.ChecksumIEEE([]byte(name))
	}
	slices.Sort(sums)
	sums = slices.Compact(sums)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Sluice-Holders", fmt.Sprintf("drop;accepted=%d;count=%d", s.serial, len(sums)))
	body := make([]byte, 0, 4*len(sums))
	for _, sum := range sums {
		body = binary.BigEndian.AppendUint32(body, sum)
	}
	_, _ = w.Write(body)
}

const buying = "/v1/sales/drop/orders"

func (e *edge) buy(t testing.TB, name string) response {
	t.Helper()
	return e.send(t, "POST", buying, "", bearerOf(t, name))
}

// awaitCached sends purchases until the edge answers from the cache.
func (e *edge) awaitCached(t testing.TB, s *saleBackend) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the edge answers from the cache", func() bool {
		before := s.purchases()
		e.buy(t, "first")
		return s.purchases() == before
	})
}
