package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// NewSale describes a sale to create.
type NewSale struct {
	ID       string        `json:"id,omitempty"` // letters, digits, '.', '_', '-'; empty: CreateSale generates one
	Title    string        `json:"title"`
	Stock    int64         `json:"stock"`
	Price    Price         `json:"price"`
	PerBuyer int           `json:"per_buyer,omitempty"` // limit per buyer; 0: 1
	Spread   int           `json:"spread,omitempty"`    // number of segments, each in a shard of its own; 0: 1
	OpensAt  time.Time     `json:"opens_at"`
	ClosesAt *time.Time    `json:"closes_at,omitempty"` // nil: no end
	Hold     time.Duration `json:"-"`                   // time to pay an order; 0: no limit
	Details
}

// Details has the optional content of the page of a sale.
type Details struct {
	Picture     string `json:"picture,omitempty"`     // http or https URL of an image; empty: none
	Description string `json:"description,omitempty"` // Markdown, at most 8000 bytes; empty: none
}

// MarshalJSON encodes the sale in the format of the API.
func (s NewSale) MarshalJSON() ([]byte, error) {
	type plain NewSale
	return json.Marshal(struct {
		plain
		Hold string `json:"hold"`
	}{plain(s), s.Hold.String()})
}

// AdminSale is a sale with the fields of the admin API.
type AdminSale struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Price    Price      `json:"price"`
	Stock    int64      `json:"stock"` // including sold units
	Left     *int64     `json:"left"`  // nil if Redis does not respond or does not hold the sale
	PerBuyer int        `json:"per_buyer"`
	State    State      `json:"state"`
	OpensAt  time.Time  `json:"opens_at"`
	ClosesAt *time.Time `json:"closes_at"` // nil: no end
	Hold     string     `json:"hold"`      // time to pay an order, such as 15m; 0s: no limit
	Switch   string     `json:"switch"`    // on, paused or closed
	Sold     int64      `json:"sold"`      // orders in the database
	Accepted *int64     `json:"accepted"`  // nil like Left
	Version  int64      `json:"version"`   // incremented by each change
	Applied  bool       `json:"applied"`   // Redis has this version

	Spread int `json:"spread"` // number of segments; 1: the sale is in one shard
	// Segments are the segments that Redis holds, if Spread is above 1.
	Segments []Segment `json:"segments,omitempty"`

	Details // Sales does not return them

	// PausedBy has the actor and the reason of a pause. Sales does not return it.
	PausedBy string `json:"paused_by,omitempty"`
	// DrainSeconds is the estimated time until all accepted orders are in the database. It is nil if unknown. Sales does
	// not return it.
	DrainSeconds *float64 `json:"drain_seconds,omitempty"`
	// Archive is set if the sale is archived or its archiving is in progress. Sales does not return it.
	Archive *SaleArchive `json:"archive,omitempty"`
}

// Segment is the part of a sale that one shard sells.
type Segment struct {
	Segment  int   `json:"segment"` // from 0
	Shard    int   `json:"shard"`
	Units    int64 `json:"units"` // owned by the segment: Left, Out, and those of its orders
	Left     int64 `json:"left"`
	Out      int64 `json:"out"` // in transfer to another segment
	Accepted int64 `json:"accepted"`
}

// SaleArchive is an archived sale. Its numbers count the orders that were moved to the files.
type SaleArchive struct {
	Orders    int64      `json:"orders"`
	Paid      int64      `json:"paid"`
	Cancelled int64      `json:"cancelled"`
	Revenue   Price      `json:"revenue"` // Paid times the price of the sale
	BegunAt   time.Time  `json:"begun_at"`
	EndedAt   *time.Time `json:"ended_at"` // nil: in progress
	Files     []string   `json:"files"`
}

// Audit has the totals of a sale at one instant. If it is Balanced, Stock is the sum of Left, InTransfer, Ready,
// Delayed, Leased, Ordered and Dead.
type Audit struct {
	SaleID      string   `json:"sale_id"`
	Stock       int64    `json:"stock"`
	Left        int64    `json:"left"`
	InTransfer  int64    `json:"in_transfer,omitempty"` // between segments
	Ready       int64    `json:"ready"`
	Delayed     int64    `json:"delayed"`
	Leased      int64    `json:"leased"`
	Ordered     int64    `json:"ordered"`
	Dead        int64    `json:"dead"`
	Returning   int64    `json:"returning"` // included in Ordered: cancelled orders whose unit is not back in stock yet
	Unbacked    int64    `json:"unbacked"`  // dead letters without a unit, not included in the sum
	Balanced    bool     `json:"balanced"`
	Archived    bool     `json:"archived,omitempty"` // the orders are in the files of an archive; Ordered is their number
	Segments    []Audit  `json:"segments,omitempty"` // those of a sale with several segments
	Differences []string `json:"differences,omitempty"`
	// Orders are the orders that cause the differences, at most 20.
	Orders []Difference `json:"orders,omitempty"`
}

// Difference is an order that an audit did not find where it should be.
type Difference struct {
	OrderID string `json:"order_id"`
	Buyer   string `json:"buyer"`
	Found   string `json:"found"`   // where the order was found
	Missing string `json:"missing"` // where the order is missing
}

func salePath(id string) string { return "/admin/v1/sales/" + url.PathEscape(id) }

// CreateSale creates a sale. Repeating a call with the same sale and its ID returns the existing one. The error matches
// Conflict if a sale with this ID has other fields.
func (a *Admin) CreateSale(ctx context.Context, s NewSale) (AdminSale, error) {
	if s.ID == "" { // a retry must name the same sale
		s.ID = rand.Text()
	}
	return post[AdminSale](ctx, &a.conn, "/admin/v1/sales", s)
}

// Sales returns all sales that are not archived, oldest first.
func (a *Admin) Sales(ctx context.Context) ([]AdminSale, error) {
	const path = "/admin/v1/sales"
	list, err := get[struct{ Sales []AdminSale }](ctx, &a.conn, path)
	return items(path, list.Sales, err)
}

// Sale returns a sale.
func (a *Admin) Sale(ctx context.Context, id string) (AdminSale, error) {
	return get[AdminSale](ctx, &a.conn, salePath(id))
}

// Pause pauses a sale. Purchases are rejected until Resume. The error matches Conflict if the sale is closed.
func (a *Admin) Pause(ctx context.Context, id string) (AdminSale, error) {
	return a.change(ctx, id, "pause")
}

// Resume resumes a paused sale. The error matches Conflict if the sale is closed.
func (a *Admin) Resume(ctx context.Context, id string) (AdminSale, error) {
	return a.change(ctx, id, "resume")
}

// Open opens a scheduled sale immediately. It does not change a sale that is open, and a paused sale stays paused. The
// error matches Conflict if the sale is closed.
func (a *Admin) Open(ctx context.Context, id string) (AdminSale, error) {
	return a.change(ctx, id, "open")
}

// Close closes a sale permanently. Accepted orders are still processed, and can be paid.
func (a *Admin) Close(ctx context.Context, id string) (AdminSale, error) {
	return a.change(ctx, id, "close")
}

func (a *Admin) change(ctx context.Context, id, verb string) (AdminSale, error) {
	return post[AdminSale](ctx, &a.conn, salePath(id)+"/"+verb, struct{}{})
}

// Restock adds units, at least one, to a sale. The key identifies the restock: repeated calls with the same key add the
// units once. If key is empty, Restock generates one for this call. The error matches Conflict if the sale is closed,
// if its stock would be too large, or if the key was used with another number of units.
func (a *Admin) Restock(ctx context.Context, id string, add int64, key string) (s AdminSale, err error) {
	if key == "" {
		key = rand.Text()
	}
	r := Request{Method: http.MethodPost, Path: salePath(id) + "/restock", Body: map[string]int64{"add": add}, Key: key}
	err = a.Do(ctx, r, &s)
	return s, err
}

// Describe replaces the picture and the description of a sale.
func (a *Admin) Describe(ctx context.Context, id string, to Details) (AdminSale, error) {
	return post[AdminSale](ctx, &a.conn, salePath(id)+"/describe", to)
}

// Audit counts all units of a sale at one instant. It can be called while the sale is running.
func (a *Admin) Audit(ctx context.Context, id string) (Audit, error) {
	return get[Audit](ctx, &a.conn, salePath(id)+"/audit")
}
