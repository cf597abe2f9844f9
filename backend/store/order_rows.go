package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"sluice/backend/sale"
)

// OrderRow is an order with all its columns. Its JSON is a line of an archive.
type OrderRow struct {
	sale.Order
	AcceptedAt   time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
	Reference    string    `json:"reference,omitempty"`     // of the payment
	CancelledBy  string    `json:"cancelled_by,omitempty"`  // an actor; ActorHold: not paid in time
	Note         string    `json:"cancel_reason,omitempty"` // the reason for the cancellation
	ReturnNumber *int64    `json:"return_number"`           // see returns.go
	Returning    bool      `json:"-"`                       // cancelled, and its unit is not back in Redis yet
	Unbacked     bool      `json:"-"`                       // cancelled, and held no unit in Redis
	Died         bool      `json:"-"`                       // cancelled as a dead order that held a unit
}

const rowColumns = orderColumns + ", created_at, updated_at, coalesce(reference, ''), coalesce(cancelled_by, '')," +
	" coalesce(cancel_reason, ''), return_number"

func scanOrderRow(row Scanner) (r OrderRow, err error) {
	err = row.Scan(&r.ID, &r.SaleID, &r.Buyer, &r.Slot, &r.Serial, &r.Status, Time(&r.DueAt), &r.Expired,
		Time(&r.AcceptedAt), Time(&r.UpdatedAt), &r.Reference, &r.CancelledBy, &r.Note, &r.ReturnNumber)
	cancelled := r.Status == sale.StatusCancelled
	r.Returning = cancelled && r.ReturnNumber == nil
	r.Unbacked = cancelled && r.ReturnNumber != nil && *r.ReturnNumber == heldNoUnit
	r.Died = cancelled && r.ReturnNumber != nil && *r.ReturnNumber == diedInQueue
	return r, err
}

func readRow(ctx context.Context, c Conn, id sale.OrderID, lock string) (OrderRow, error) {
	return GetRow(ctx, c, scanOrderRow, "SELECT "+rowColumns+" FROM orders WHERE id = $1"+lock, int64(id))
}

// OrderQuery selects rows. The zero value selects all.
type OrderQuery struct {
	ID     sale.OrderID
	SaleID string
	Buyer  string // without SaleID, orders that are not cancelled are found in the 500 newest sales only
	Status sale.Status
	Newest bool         // by descending ids
	After  sale.OrderID // only rows behind this one
	Limit  int          // see PageSize
}

// OrderRows returns one page of rows, by order id.
func (s *Store) OrderRows(ctx context.Context, q OrderQuery) ([]OrderRow, error) {
	query, args := q.rows(0)
	return ViewRows(ctx, s.DB, "store: rows", scanOrderRow, query, args...)
}

// partSizes are the sizes of the parts of the table, in rows, that OrderPage searches one after the other for rows of
// one status. Most pages are full after the first part.
var partSizes = []int{1000, 1_000_000}

// OrderPage is OrderRows, and also returns next, the After of the next page; 0: there is none. No index contains the
// status, so a page of rows with one status searches at most about a million rows. Such a page may be short or empty
// although more rows follow; next is then not 0.
func (s *Store) OrderPage(ctx context.Context, q OrderQuery) (rows []OrderRow, next sale.OrderID, err error) {
	limit, sizes := PageSize(q.Limit), partSizes
	if q.Status == "" || q.ID != 0 || q.Buyer != "" {
		sizes = []int{0} // one part, because an index finds the rows
	}
	err = s.Snapshot(ctx, "store: page of rows", func(ctx context.Context, c Conn) error {
		for _, size := range sizes {
			q.Limit = limit - len(rows)
			query, args := q.rows(size)
			part, err := Select(ctx, c, scanOrderRow, query, args...)
			if rows = append(rows, part...); err != nil {
				return err
			}
			if len(rows) == limit {
				next = rows[limit-1].ID
				return nil
			}
			if next, err = q.endOfPart(ctx, c, size); err != nil || next == 0 {
				return err
			}
			q.After = next
		}
		return nil
	})
	return rows, next, err
}

// endOfPart returns the id of the last row of a part; 0: no rows follow.
func (q OrderQuery) endOfPart(ctx context.Context, c Conn, size int) (id sale.OrderID, err error) {
	if size == 0 {
		return 0, nil
	}
	var f Filter
	part := f.first(q.behind(&f), 1) + " OFFSET " + f.Arg(size-1)
	err = Get(ctx, c, []any{&id}, "SELECT id FROM orders"+part, f.Args...)
	if errors.Is(err, sale.ErrNotFound) {
		err = nil
	}
	return id, err
}

// rows returns the query of a page. With size, it selects from that many rows behind q.After.
func (q OrderQuery) rows(size int) (query string, args []any) {
	var f Filter
	orderBy, from := q.behind(&f), "orders"
	if size > 0 {
		from = "(SELECT * FROM orders" + f.first(orderBy, size) + ") AS orders"
		f.conditions = nil
	}
	f.Equal("id", int64(q.ID))
	f.Equal("status", string(q.Status))
	if q.Buyer != "" {
		f.AddConstant("id IN (" + idsOfBuyer(&f, q.Buyer, q.SaleID) + ")")
	}
	page := f.Page(orderBy, q.Limit)
	return "SELECT " + rowColumns + " FROM " + from + page, f.Args
}

// behind adds the conditions that a row is of the sale and behind q.After. It returns the columns to order by.
func (q OrderQuery) behind(f *Filter) (orderBy string) {
	if q.SaleID != "" && q.ID == 0 && q.Buyer == "" {
		return f.ofSale(q.SaleID, int64(q.After), q.Newest)
	}
	f.Equal("sale_id", q.SaleID)
	behind, orderBy := "id > ?", "id"
	if q.Newest {
		behind, orderBy = "id < ?", "id DESC"
	}
	if q.After > 0 {
		f.Add(behind, int64(q.After))
	}
	return orderBy
}

// idsOfBuyer selects the ids of a buyer's orders in one sale, or in the newest sales, by the indexes that OrdersOfBuyer
// uses.
func idsOfBuyer(f *Filter, buyer, saleID string) string {
	sales := "SELECT id FROM sales ORDER BY created_at DESC LIMIT " + strconv.Itoa(recentSales)
	if saleID != "" {
		sales = "SELECT CAST(" + f.Arg(saleID) + " AS text) AS id"
	}
	b := f.Arg(buyer)
	return "SELECT orders.id FROM (" + sales + ") AS recent JOIN orders ON orders.sale_id = recent.id AND orders.buyer = " + b +
		" AND orders.status <> 'cancelled' UNION ALL SELECT id FROM orders WHERE buyer = " + b + " AND status = 'cancelled'"
}
