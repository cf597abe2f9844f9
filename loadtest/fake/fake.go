// Package fake provides an in-memory server with the parts of sluice's API that the load tests use. On request it has
// one known fault, which a load test must detect. It handles one sale.
package fake

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Fault is a known fault of a Server. The zero value is a correct server.
type Fault string

// The faults.
const (
	Oversells    Fault = "sells three units more than the stock"
	Undersells   Fault = "refuses buyers as sold out while units are left"
	SellsTwice   Fault = "gives a buyer two units"
	ChangesReply Fault = "answers the same request with another order id"
	LosesOrders  Fault = "accepts every third order and loses it"
	HidesLosses  Fault = "loses every third order and counts it as a row"
	AddsRows     Fault = "adds rows without orders"
	Unbalanced   Fault = "reports an unbalanced audit"
	NeverEmpties Fault = "never writes one of the orders"
	NeverAudits  Fault = "rejects every audit"
	StopsAudits  Fault = "rejects audits after the first order"
	NeverStocks  Fault = "rejects every restock"
	Crashes      Fault = "returns 500 for every fifth purchase"
	Stalls       Fault = "takes longer to accept an order than buyers should wait"
	ServesHTML   Fault = "refuses with HTML instead of problem+json"
)

// EndsHolds is no fault: two orders are cancelled when the sale is sold out, because they were not paid, and no buyer
// gets their units.
const EndsHolds Fault = "cancels two orders"

// Server serves the public API and the admin API on separate listeners. It is safe for concurrent use.
type Server struct {
	Public, Admin *httptest.Server

	fault       Fault
	tokenSecret []byte
	adminToken  string

	mu       sync.Mutex
	saleID   string
	stock    int
	sold     int
	opensAt  time.Time
	closed   bool
	requests int
	orders   map[string]*order   // by id
	buyers   map[string][]string // buyer to order ids
	keys     map[string]string   // buyer and idempotency key to order id
}

type order struct {
	buyer string
	lost  bool
	rowAt time.Time
}

// lag is the time until an accepted order is a row.
const lag = 50 * time.Millisecond

// stall is the response time of Stalls. The default of P95_ACCEPTED is 500 ms.
const stall = 600 * time.Millisecond

// New starts a server; Close stops it.
func New(fault Fault, tokenSecret, adminToken string) *Server {
	s := &Server{
		fault: fault, tokenSecret: []byte(tokenSecret), adminToken: adminToken,
		orders: map[string]*order{}, buyers: map[string][]string{}, keys: map[string]string{},
	}
	s.Public, s.Admin = httptest.NewServer(s.public()), httptest.NewServer(s.admin())
	return s
}

// Close stops both listeners.
func (s *Server) Close() {
	s.Public.Close()
	s.Admin.Close()
}

// Closed reports whether the sale was created and closed.
func (s *Server) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

type decision struct {
	status   int
	code     string // of a refusal
	orderID  string
	replayed bool
}

func (s *Server) purchase(buyer, key string) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.fault == Crashes && s.requests%5 == 0 {
		return decision{status: http.StatusInternalServerError, code: "internal-error"}
	}
	if time.Now().Before(s.opensAt) {
		return decision{status: http.StatusConflict, code: "sale-not-open"}
	}
	if s.closed {
		return decision{status: http.StatusConflict, code: "sale-closed"}
	}
	if id := s.keys[buyer+key]; key != "" && id != "" {
		if s.fault == ChangesReply {
			id += "7"
		}
		return decision{status: http.StatusAccepted, orderID: id, replayed: true}
	}
	slots := 1
	if s.fault == SellsTwice {
		slots = 2
	}
	if held := s.buyers[buyer]; len(held) >= slots {
		return decision{status: http.StatusConflict, code: "already-bought", orderID: held[0]}
	}
	stock := s.stock
	switch s.fault {
	case Oversells:
		stock += 3
	case Undersells:
		stock -= 3
	}
	if s.sold >= stock {
		return decision{status: http.StatusConflict, code: "sold-out"}
	}
	return decision{status: http.StatusAccepted, orderID: s.sell(buyer, key)}
}

func (s *Server) sell(buyer, key string) string {
	s.sold++
	id := strconv.Itoa(900719925474099300 + s.sold)
	o := &order{buyer: buyer, rowAt: time.Now().Add(lag)}
	o.lost = s.sold%3 == 0 && (s.fault == LosesOrders || s.fault == HidesLosses)
	if s.fault == NeverEmpties && s.sold == 1 {
		o.rowAt = o.rowAt.Add(time.Hour)
	}
	s.orders[id] = o
	s.buyers[buyer] = append(s.buyers[buyer], id)
	if key != "" {
		s.keys[buyer+key] = id
	}
	return id
}

// cancelled returns the ids of cancelled orders.
func (s *Server) cancelled() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != EndsHolds || s.sold < s.stock {
		return nil
	}
	for id := range s.orders {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[:2]
}

type unitCount struct {
	Stock     int  `json:"stock"`
	Left      int  `json:"left"`
	Ready     int  `json:"ready"`
	Delayed   int  `json:"delayed"`
	Leased    int  `json:"leased"`
	Ordered   int  `json:"ordered"`
	Dead      int  `json:"dead"`
	Returning int  `json:"returning"`
	Balanced  bool `json:"balanced"`
}

func (s *Server) audit() unitCount {
	back := len(s.cancelled())
	s.mu.Lock()
	defer s.mu.Unlock()
	b := unitCount{Stock: s.stock, Left: s.stock - s.sold, Balanced: s.fault != Unbalanced}
	for _, o := range s.orders {
		switch {
		case o.lost && s.fault != HidesLosses:
		case time.Now().Before(o.rowAt):
			b.Ready++
		default:
			b.Ordered++
		}
	}
	b.Left, b.Ordered = b.Left+back, b.Ordered-back
	if s.fault == AddsRows && s.sold > 2 {
		b.Left -= 2
		b.Ordered += 2
	}
	return b
}

// find returns the status of the buyer's order, or "" if it does not exist.
func (s *Server) find(buyer, id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	switch {
	case o == nil || o.buyer != buyer || o.lost:
		return ""
	case time.Now().Before(o.rowAt):
		return "queued"
	}
	return "created"
}
