package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Operator makes operators' calls, at the listener that is theirs. It is safe for concurrent use; the zero value is not usable. Calls without a method of their own
// go by Do.
type Operator struct{ conn }

// NewOperator makes an Operator of the address of the operators' listener, such as http://127.0.0.1:8081, and the token SLUICE_ADMIN_TOKEN. The error says what is
// wrong with the address; nothing is sent.
func NewOperator(base, token string, options ...Option) (*Operator, error) {
	c, err := newConn(base, append([]Option{WithToken(token)}, options...))
	return &Operator{c}, err
}

// WithActor says who does it, for the records; the default is "operator".
func WithActor(name string) Option { return func(c *conn) { c.actor = name } }

// NewSale is a sale to be made.
type NewSale struct {
	ID       string        `json:"id,omitempty"` // letters, digits, '.', '_', '-'; empty: one is made
	Title    string        `json:"title"`
	Stock    int64         `json:"stock"`
	Price    Price         `json:"price"`
	PerBuyer int           `json:"per_buyer,omitempty"` // 0: 1
	OpensAt  time.Time     `json:"opens_at"`
	ClosesAt *time.Time    `json:"closes_at,omitempty"` // nil: no end
	Hold     time.Duration `json:"-"`                   // how long an order may stay unpaid; 0: for ever
}

// MarshalJSON writes it as the API reads it.
func (s NewSale) MarshalJSON() ([]byte, error) {
	type plain NewSale
	return json.Marshal(struct {
		plain
		Hold string `json:"hold"`
	}{plain(s), s.Hold.String()})
}

// DeskSale is a sale as operators see it.
type DeskSale struct {
	ID           string     `json:"id"`
	Title        string     `json:"title"`
	Price        Price      `json:"price"`
	Stock        int64      `json:"stock"` // sold units included
	Left         *int64     `json:"left"`  // nil: Redis does not hold the sale, or does not answer
	PerBuyer     int        `json:"per_buyer"`
	State        State      `json:"state"`
	OpensAt      time.Time  `json:"opens_at"`
	ClosesAt     *time.Time `json:"closes_at"`     // nil: no end
	Hold         string     `json:"hold"`          // how long an order may stay unpaid, such as 15m; 0s: for ever
	Switch       string     `json:"switch"`        // on, paused or closed
	Sold         int64      `json:"sold"`          // orders that are rows
	Accepted     *int64     `json:"accepted"`      // nil as Left
	Version      int64      `json:"version"`       // counts the changes
	Applied      bool       `json:"applied"`       // Redis holds this version
	PausedBy     string     `json:"paused_by"`     // of one sale that is paused
	DrainSeconds *float64   `json:"drain_seconds"` // of one sale: every order accepted by now is in SQL within so many; nil: not known
}

// Audit is a sale's count at one instant: Stock is the sum of Left to Dead when it balances.
type Audit struct {
	SaleID      string   `json:"sale_id"`
	Stock       int64    `json:"stock"`
	Left        int64    `json:"left"`
	Ready       int64    `json:"ready"`
	Delayed     int64    `json:"delayed"`
	Leased      int64    `json:"leased"`
	Ordered     int64    `json:"ordered"`
	Dead        int64    `json:"dead"`
	Returning   int64    `json:"returning"` // of the ordered
	Unbacked    int64    `json:"unbacked"`  // dead letters that hold no unit, no part of the sum
	Balanced    bool     `json:"balanced"`
	Differences []string `json:"differences,omitempty"`
	// Orders are those that were found where they should not be, when it does not balance.
	Orders []Difference `json:"orders,omitempty"`
}

// Difference is one order that is not where it should be.
type Difference struct {
	OrderID string `json:"order_id"`
	Buyer   string `json:"buyer"`
	Found   string `json:"found"`   // where it is
	Missing string `json:"missing"` // where it is not, and should be
}

func salePath(id string) string { return "/admin/v1/sales/" + url.PathEscape(id) }

// CreateSale makes a sale, in SQL and then in Redis. The very same one again answers the same.
func (o *Operator) CreateSale(ctx context.Context, s NewSale) (made DeskSale, err error) {
	if s.ID == "" { // or a repeated call would make a second one
		s.ID = rand.Text()
	}
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/sales", Body: s}, &made)
	return made, err
}

// Sales are all of them, the oldest first.
func (o *Operator) Sales(ctx context.Context) ([]DeskSale, error) {
	var answer struct {
		Sales []DeskSale `json:"sales"`
	}
	err := o.Do(ctx, Request{Method: http.MethodGet, Path: "/admin/v1/sales"}, &answer)
	return answer.Sales, err
}

// Sale is one of them. The error matches NotFound where there is none.
func (o *Operator) Sale(ctx context.Context, id string) (s DeskSale, err error) {
	err = o.Do(ctx, Request{Method: http.MethodGet, Path: salePath(id)}, &s)
	return s, err
}

// Pause stops accepting orders until Resume.
func (o *Operator) Pause(ctx context.Context, id string) (DeskSale, error) {
	return o.turn(ctx, id, "pause")
}

// Resume accepts orders again.
func (o *Operator) Resume(ctx context.Context, id string) (DeskSale, error) {
	return o.turn(ctx, id, "resume")
}

// Open opens a sale now that was to open later. One that has opened stays as it is.
func (o *Operator) Open(ctx context.Context, id string) (DeskSale, error) {
	return o.turn(ctx, id, "open")
}

// Close ends the sale for good.
func (o *Operator) Close(ctx context.Context, id string) (DeskSale, error) {
	return o.turn(ctx, id, "close")
}

func (o *Operator) turn(ctx context.Context, id, verb string) (s DeskSale, err error) {
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: salePath(id) + "/" + verb, Body: struct{}{}}, &s)
	return s, err
}

// Restock puts more units on sale. The key names this restock, so that repeating it adds nothing; empty: one is made for this call.
func (o *Operator) Restock(ctx context.Context, id string, add int64, key string) (s DeskSale, err error) {
	if key == "" {
		key = rand.Text()
	}
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: salePath(id) + "/restock", Body: map[string]int64{"add": add}, Key: key}, &s)
	return s, err
}

// Audit counts every unit of a sale at one instant, while it runs.
func (o *Operator) Audit(ctx context.Context, id string) (a Audit, err error) {
	err = o.Do(ctx, Request{Method: http.MethodGet, Path: salePath(id) + "/audit"}, &a)
	return a, err
}

// Queue is how many accepted orders wait.
type Queue struct {
	Ready            int64    `json:"ready"`
	Delayed          int64    `json:"delayed"`
	Leased           int64    `json:"leased"`
	Leases           int64    `json:"leases"`
	Dead             int64    `json:"dead"`
	OldestAgeSeconds float64  `json:"oldest_age_seconds"`
	DrainSeconds     *float64 `json:"drain_seconds"` // every order accepted by now is in SQL within so many; nil: not known
}

// Queue looks at the queue of accepted orders.
func (o *Operator) Queue(ctx context.Context) (q Queue, err error) {
	err = o.Do(ctx, Request{Method: http.MethodGet, Path: "/admin/v1/queue"}, &q)
	return q, err
}
