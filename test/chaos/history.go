package chaos

import "sync"

// History holds the requests of buyers and the admin, and the answers they received. It is safe for concurrent use.
type History struct {
	mu sync.Mutex

	Sales     map[string]*Offer
	Asked     map[Place]int     // purchases that were sent
	Confirmed map[string]Place  // order id of a 202 or an "already bought" -> buyer and sale
	Keys      map[Request]keyed // 202 -> order id
	Cancel    map[string]bool   // order ids of cancel requests, with or without an answer
	Wrong     []string          // answers that contradict earlier ones

	Accepted, Replayed, Refused, Unavailable, Unanswered int // answers

	Losses    func() int64 // counts the times that Redis may have lost data; nil: it never does
	Forgotten int          // request keys that got another order after such a loss, which per_buyer allowed
}

// keyed is the order that a request key got.
type keyed struct {
	order string
	sent  int64 // losses before the request was sent
}

// Offer is a sale as the admin created it.
type Offer struct {
	Stock    int64 // including restocks
	PerBuyer int
	Spread   int // number of segments; 0 and 1: the sale is in one shard
}

// Place is one buyer in one sale.
type Place struct{ Sale, Buyer string }

// Request is one request key of a buyer.
type Request struct {
	Place

	Key string
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{
		Sales:     map[string]*Offer{},
		Asked:     map[Place]int{},
		Confirmed: map[string]Place{},
		Keys:      map[Request]keyed{},
		Cancel:    map[string]bool{},
	}
}

func (h *History) offer(saleID string, o Offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Sales[saleID] = &o
}

func (h *History) restocked(saleID string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Sales[saleID].Stock += n
}

// sends records a purchase before it is sent. It returns the number of losses so far.
func (h *History) sends(p Place) (sent int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Asked[p]++
	return h.losses()
}

func (h *History) losses() int64 {
	if h.Losses == nil {
		return 0
	}
	return h.Losses()
}

func (h *History) cancels(orderID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Cancel[orderID] = true
}

// answered records an answer to a purchase; sent is the result of sends.
func (h *History) answered(r Request, a answer, sent int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case a.status == 202:
		h.Accepted++
		if a.replayed {
			h.Replayed++
		}
		switch before, ok := h.Keys[r]; {
		case !ok:
			h.Keys[r] = keyed{a.OrderID, sent}
		case before.order == a.OrderID:
			// the same answer
		case before.sent < h.losses() && h.Sales[r.Sale].PerBuyer > 1:
			h.Forgotten++
			h.Keys[r] = keyed{a.OrderID, sent}
		default:
			h.Wrong = append(
				h.Wrong, r.Sale+": "+r.Buyer+" repeated a request key and got the orders "+before.order+" and "+a.OrderID)
		}
		h.tell(a.OrderID, r.Place)
	case a.Code == "already-bought":
		h.Refused++
		h.tell(a.OrderID, r.Place)
	case a.status == 503:
		h.Unavailable++
	case a.status == 0:
		h.Unanswered++
	default:
		h.Refused++
	}
}

func (h *History) tell(orderID string, p Place) {
	if before, ok := h.Confirmed[orderID]; ok && before != p {
		h.Wrong = append(h.Wrong, "order "+orderID+" was confirmed to "+before.Buyer+" and to "+p.Buyer)
	}
	h.Confirmed[orderID] = p
}

// orders returns the number of confirmed orders.
func (h *History) orders() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.Confirmed)
}

// some returns a confirmed order that was not cancelled.
func (h *History) some() (orderID string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.Confirmed { // in Go's own random order
		if !h.Cancel[id] {
			return id, true
		}
	}
	return "", false
}
