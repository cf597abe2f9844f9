package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// SaleSummary is a sale and the number of its orders that are not cancelled.
type SaleSummary struct {
	sale.Sale
	Sold int64
}

// saleColumns are followed by the details of the sale, or by empty ones in lists.
const saleColumns = "id, title, price_amount, currency, stock, per_buyer, opens_at, closes_at, " +
	"switch, version, hold_ms, spread, sold, "

func scanSale(row Scanner) (s SaleSummary, err error) {
	var hold int64
	err = row.Scan(&s.ID, &s.Title, &s.Price.Amount, &s.Price.Currency, &s.Stock, &s.PerBuyer, Time(&s.OpensAt),
		Time(&s.ClosesAt), &s.Switch, &s.Version, &hold, &s.Spread, &s.Sold, &s.Picture, &s.Description)
	if s.Spread == 1 {
		s.Spread = 0
	}
	s.Hold = time.Duration(hold) * time.Millisecond
	return s, err
}

const (
	selectSale  = "SELECT " + saleColumns + "picture, description FROM sales WHERE id = $1"
	selectSales = "SELECT " + saleColumns + "'', '' FROM sales"
)

func readSale(ctx context.Context, c Conn, id, lock string) (SaleSummary, error) {
	return GetRow(ctx, c, scanSale, selectSale+lock, id)
}

// CreateSale stores a new sale and returns it as stored: at version 1, with the switch on if it is empty, with times
// truncated to milliseconds, and with its stock divided over its segments. A repeated call with the same sale returns
// the existing one, also if it was restocked, paused or closed meanwhile. Errors: sale.ErrExists if a different sale
// has the id; *sale.InvalidError.
func (s *Store) CreateSale(ctx context.Context, n sale.Sale) (sale.Sale, error) {
	n.Switch = cmp.Or(n.Switch, sale.On)
	n.Version = 1
	if n.Spread == 1 {
		n.Spread = 0
	}
	n.OpensAt, n.ClosesAt = n.OpensAt.UTC().Truncate(time.Millisecond), n.ClosesAt.UTC().Truncate(time.Millisecond)
	if err := n.Validate(); err != nil {
		return sale.Sale{}, fmt.Errorf("store: create sale: %w", err)
	}
	return Value(ctx, s.Update, "store: create sale "+n.ID, func(ctx context.Context, c Conn) (sale.Sale, error) {
		created, err := c.Exec(ctx, `INSERT INTO sales (id, title, price_amount, currency, stock, per_buyer, opens_at,
				closes_at, switch, hold_ms, picture, description, spread, version, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1, `+c.Dialect().Now+`) ON CONFLICT (id) DO NOTHING`,
			n.ID, n.Title, n.Price.Amount, n.Price.Currency, n.Stock, n.PerBuyer, n.OpensAt,
			nullTime(n.ClosesAt), string(n.Switch), n.Hold.Milliseconds(), n.Picture, n.Description, max(n.Spread, 1))
		if err == nil && created == 0 {
			return createdBefore(ctx, c, n)
		}
		if err == nil {
			err = createSegments(ctx, c, n)
		}
		if err == nil {
			err = logSale(ctx, c, "sale.create", n.ID, fmt.Sprintf("stock %d", n.Stock))
		}
		return n, err
	})
}

// createdBefore returns the sale with the id of a new one, or sale.ErrExists if it was created with other fields.
func createdBefore(ctx context.Context, c Conn, n sale.Sale) (sale.Sale, error) {
	found, err := readSale(ctx, c, n.ID, "")
	if err != nil {
		return sale.Sale{}, err
	}
	const query = "SELECT CAST(coalesce(sum(units), 0) AS bigint) FROM restocks WHERE sale_id = $1"
	restocked, err := GetRow(ctx, c, Column[int64], query, n.ID)
	created := found.Sale
	created.Stock -= restocked
	created.Switch, created.Version = n.Switch, n.Version
	if err == nil && created != n {
		err = sale.ErrExists
	}
	return found.Sale, err
}

// Sale returns a sale and the number of its orders that are not cancelled, or sale.ErrNotFound.
func (s *Store) Sale(ctx context.Context, id string) (found sale.Sale, sold int64, err error) {
	summary, err := ViewRow(ctx, s.DB, "store: sale "+id, scanSale, selectSale, id)
	return summary.Sale, summary.Sold, err
}

// Details returns the details of a sale, or sale.ErrNotFound.
func (s *Store) Details(ctx context.Context, id string) (sale.Details, error) {
	found, _, err := s.Sale(ctx, id)
	return found.Details, err
}

// SetDetails replaces the details of a sale and returns the sale. The version grows by one if they change. Errors:
// sale.ErrNotFound; *sale.InvalidError.
func (s *Store) SetDetails(ctx context.Context, id string, to sale.Details) (sale.Sale, error) {
	if err := to.Validate(); err != nil {
		return sale.Sale{}, fmt.Errorf("store: details of sale %s: %w", id, err)
	}
	op := "store: set details of sale " + id
	return s.changeSale(ctx, op, id, func(ctx context.Context, c Conn, now *sale.Sale) error {
		if now.Details == to {
			return nil
		}
		now.Details = to
		now.Version++
		return logSale(ctx, c, "sale.describe", id, fmt.Sprintf("version %d", now.Version))
	})
}

// SaleSummaries returns every sale that is not archived, without its details, oldest first.
func (s *Store) SaleSummaries(ctx context.Context) ([]SaleSummary, error) {
	return ViewRows(ctx, s.DB, "store: sales", scanSale, selectSales+" WHERE archived = 0 ORDER BY created_at, id")
}

// SetSwitch sets a sale's switch and returns the sale. The version grows by one if the switch changes. Errors:
// a *RefusedError for a closed sale, which stays closed; sale.ErrNotFound; *sale.InvalidError for an unknown switch.
func (s *Store) SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error) {
	if to != sale.On && to != sale.Paused && to != sale.Closed {
		return sale.Sale{}, sale.Invalid("switch", "must be on, paused or closed")
	}
	op := fmt.Sprintf("store: set sale %s to %s", id, to)
	return s.changeSale(ctx, op, id, func(ctx context.Context, c Conn, now *sale.Sale) error {
		if now.Switch == to {
			return nil
		}
		if now.Switch == sale.Closed {
			return errClosed
		}
		now.Switch = to
		now.Version++
		return logSale(ctx, c, "sale."+switchAction[to], id, fmt.Sprintf("version %d", now.Version))
	})
}

var errClosed = Refused("The sale is closed and cannot be reopened.")

var switchAction = map[sale.Switch]string{sale.On: "resume", sale.Paused: "pause", sale.Closed: "close"}

// OpenSale moves the opening of a scheduled sale to an earlier time and returns the sale, with its version one higher.
// A sale that opens at that time or before is left unchanged, so the call may be repeated. The switch stays: a paused
// sale remains paused. Errors: a *RefusedError for a sale that is closed or closes by then; sale.ErrNotFound.
func (s *Store) OpenSale(ctx context.Context, id string, at time.Time) (sale.Sale, error) {
	at = at.UTC().Truncate(time.Millisecond)
	return s.changeSale(ctx, "store: open sale "+id, id, func(ctx context.Context, c Conn, now *sale.Sale) error {
		switch {
		case now.Switch == sale.Closed, !now.ClosesAt.IsZero() && !at.Before(now.ClosesAt):
			return errClosed
		case !now.OpensAt.After(at):
			return nil
		}
		was := now.OpensAt
		now.OpensAt = at
		now.Version++
		detail := fmt.Sprintf("version %d, instead of %s", now.Version, was.Format(time.RFC3339))
		return logSale(ctx, c, "sale.open", id, detail)
	})
}

// Restock adds units to a sale and returns the sale, with its version one higher. A request key makes the call
// idempotent: a second call with the same key and number changes nothing. Errors: a *RefusedError for a key that was
// used with another number, a closed sale, or a stock above sale.MaxStock; sale.ErrNotFound; *sale.InvalidError for an
// add below 1 or an invalid key.
func (s *Store) Restock(ctx context.Context, id string, add int64, requestKey string) (sale.Sale, error) {
	if add < 1 {
		return sale.Sale{}, sale.Invalid("add", "must be at least 1")
	}
	if requestKey != "" && sale.ValidateBuyer(requestKey) != nil {
		return sale.Sale{}, sale.Invalid("request_key", "must be 1 to 255 bytes of UTF-8 text without control characters")
	}
	return s.changeSale(ctx, "store: restock sale "+id, id, func(ctx context.Context, c Conn, now *sale.Sale) error {
		var key any
		if requestKey != "" {
			key = requestKey
			var before int64
			err := Get(ctx, c, []any{&before},
				"SELECT units FROM restocks WHERE sale_id = $1 AND request_key = $2", id, requestKey)
			switch {
			case err == nil && before == add:
				return nil
			case err == nil:
				return Refused("Nothing was added: this Idempotency-Key was used with another number.")
			case !errors.Is(err, sale.ErrNotFound):
				return err
			}
		}
		if now.Switch == sale.Closed {
			return Refused("Nothing was added: the sale is closed.")
		}
		if add > sale.MaxStock-now.Stock {
			return Refused("Nothing was added: the stock of the sale would exceed %d.", int64(sale.MaxStock))
		}
		now.Stock += add
		now.Version++
		const insert = "INSERT INTO restocks (sale_id, request_key, units) VALUES ($1, $2, $3)"
		if _, err := c.Exec(ctx, insert, id, key, add); err != nil {
			return err
		}
		if err := restockSegments(ctx, c, now, add); err != nil {
			return err
		}
		detail := fmt.Sprintf("added %d, stock %d, version %d", add, now.Stock, now.Version)
		return logSale(ctx, c, "sale.restock", id, detail)
	})
}

// changeSale locks a sale and calls change, which may modify its switch, stock, opening and details. It stores the sale
// if its version grew.
func (s *Store) changeSale(
	ctx context.Context, op, id string, change func(context.Context, Conn, *sale.Sale) error,
) (sale.Sale, error) {
	return Value(ctx, s.Update, op, func(ctx context.Context, c Conn) (now sale.Sale, err error) {
		found, err := readSale(ctx, c, id, c.Dialect().ForUpdate)
		if err != nil {
			return now, err
		}
		now = found.Sale
		if err := change(ctx, c, &now); err != nil || now.Version == found.Version {
			return now, err
		}
		_, err = c.Exec(ctx, "UPDATE sales SET switch = $2, stock = $3, opens_at = $4, version = $5, picture = $6, "+
			"description = $7 WHERE id = $1",
			id, string(now.Switch), now.Stock, now.OpensAt, now.Version, now.Picture, now.Description)
		return now, err
	})
}
