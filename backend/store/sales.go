package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

const saleColumns = "id, title, price_amount, currency, stock, per_buyer, opens_at, closes_at, switch, version, hold_ms, sold"

func scanSale(r row) (s sale.Sale, sold int64, err error) {
	var opens, closes instant
	var hold int64
	err = r.Scan(&s.ID, &s.Title, &s.Price.Amount, &s.Price.Currency, &s.Stock, &s.PerBuyer, &opens, &closes, &s.Switch, &s.Version, &hold, &sold)
	s.OpensAt, s.ClosesAt = opens.Time, closes.Time
	s.Hold = time.Duration(hold) * time.Millisecond
	return s, sold, err
}

// CreateSale stores a new sale. Its version becomes 1, an empty switch becomes on, times lose what is below a millisecond. It returns the sale as stored,
// sale.ErrExists when the id is taken, or a *sale.InvalidError.
func (s *Store) CreateSale(ctx context.Context, n sale.Sale) (sale.Sale, error) {
	if n.Switch == "" {
		n.Switch = sale.On
	}
	n.Version = 1
	n.OpensAt, n.ClosesAt = n.OpensAt.UTC().Truncate(time.Millisecond), n.ClosesAt.UTC().Truncate(time.Millisecond)
	if err := n.Validate(); err != nil {
		return sale.Sale{}, fmt.Errorf("order: create sale: %w", err)
	}
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		created, err := db.exec(ctx, `INSERT INTO sales (id, title, price_amount, currency, stock, per_buyer, opens_at, closes_at, switch, hold_ms, version, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, `+s.engine.dialect().now+`) ON CONFLICT (id) DO NOTHING`,
			n.ID, n.Title, n.Price.Amount, n.Price.Currency, n.Stock, n.PerBuyer, n.OpensAt, orNull(n.ClosesAt), string(n.Switch), n.Hold.Milliseconds())
		if err != nil {
			return err
		}
		if created == 0 {
			return sale.ErrExists
		}
		return record(ctx, db, actorOf(ctx), "sale.create", n.ID, fmt.Sprintf("stock %d", n.Stock))
	})
	if err != nil {
		return sale.Sale{}, fmt.Errorf("order: create sale %s: %w", n.ID, err)
	}
	return n, nil
}

// Sale returns a sale and how many of its units are orders. It returns sale.ErrNotFound.
func (s *Store) Sale(ctx context.Context, id string) (found sale.Sale, sold int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	found, sold, err = readSale(ctx, s.engine.direct(), id, "")
	if err != nil {
		return sale.Sale{}, 0, fmt.Errorf("order: sale %s: %w", id, err)
	}
	return found, sold, nil
}

// Standing is a sale and how many of its units are orders.
type Standing struct {
	sale.Sale
	Sold int64
}

// Standings returns every sale with what is sold of it, the oldest first.
func (s *Store) Standings(ctx context.Context) ([]Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var standings []Standing
	err := s.engine.direct().query(ctx, func(r row) error {
		found, sold, err := scanSale(r)
		standings = append(standings, Standing{found, sold})
		return err
	}, "SELECT "+saleColumns+" FROM sales ORDER BY created_at, id")
	if err != nil {
		return nil, fmt.Errorf("order: sales: %w", err)
	}
	return standings, nil
}

// Sales returns every sale, the oldest first.
func (s *Store) Sales(ctx context.Context) ([]sale.Sale, error) {
	standings, err := s.Standings(ctx)
	if err != nil {
		return nil, err
	}
	sales := make([]sale.Sale, len(standings))
	for i, standing := range standings {
		sales[i] = standing.Sale
	}
	return sales, nil
}

// SetSwitch sets a sale's switch and returns the sale. The version grows by one, unless the switch stands there already. A closed sale stays
// closed: sale.ErrConflict. Other errors: sale.ErrNotFound, *sale.InvalidError for an unknown position.
func (s *Store) SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error) {
	if to != sale.On && to != sale.Paused && to != sale.Closed {
		return sale.Sale{}, &sale.InvalidError{Fields: []sale.FieldError{{Field: "switch", Detail: "must be on, paused or closed"}}}
	}
	changed, err := s.changeSale(ctx, id, func(ctx context.Context, db conn, now *sale.Sale) error {
		if now.Switch == to {
			return nil
		}
		if now.Switch == sale.Closed {
			return fmt.Errorf("the sale is closed: %w", sale.ErrConflict)
		}
		now.Switch = to
		now.Version++
		return record(ctx, db, actorOf(ctx), "sale."+switchAction[to], id, fmt.Sprintf("version %d", now.Version)+because(ctx))
	})
	if err != nil {
		return sale.Sale{}, fmt.Errorf("order: set sale %s to %s: %w", id, to, err)
	}
	return changed, nil
}

// OpenSale makes a sale that is to open later open at the time at, and returns it, its version one higher. One that has opened by then stays as it
// is, so it may be repeated; one that is paused stays paused. A sale that is closed, or closes by then, is sale.ErrConflict. Other errors:
// sale.ErrNotFound.
func (s *Store) OpenSale(ctx context.Context, id string, at time.Time) (sale.Sale, error) {
	at = at.UTC().Truncate(time.Millisecond)
	changed, err := s.changeSale(ctx, id, func(ctx context.Context, db conn, now *sale.Sale) error {
		switch {
		case now.Switch == sale.Closed, !now.ClosesAt.IsZero() && !at.Before(now.ClosesAt):
			return fmt.Errorf("the sale is closed: %w", sale.ErrConflict)
		case !now.OpensAt.After(at):
			return nil
		}
		was := now.OpensAt
		now.OpensAt = at
		now.Version++
		return record(ctx, db, actorOf(ctx), "sale.open", id, fmt.Sprintf("version %d, instead of %s", now.Version, was.Format(time.RFC3339))+because(ctx))
	})
	if err != nil {
		return sale.Sale{}, fmt.Errorf("order: open sale %s: %w", id, err)
	}
	return changed, nil
}

var switchAction = map[sale.Switch]string{sale.On: "resume", sale.Paused: "pause", sale.Closed: "close"}

// Restock adds units to a sale and returns the sale, its version one higher. A request key that this sale has seen makes it a no-op, so a request may be
// repeated; with another number of units it is sale.ErrConflict, as are a closed sale and a stock above sale.MaxStock. Other
// errors: sale.ErrNotFound, *sale.InvalidError when add is below 1.
func (s *Store) Restock(ctx context.Context, id string, add int64, requestKey string) (sale.Sale, error) {
	if add < 1 {
		return sale.Sale{}, &sale.InvalidError{Fields: []sale.FieldError{{Field: "add", Detail: "must be at least 1"}}}
	}
	if requestKey != "" && sale.ValidateBuyer(requestKey) != nil {
		return sale.Sale{}, &sale.InvalidError{Fields: []sale.FieldError{{Field: "request_key", Detail: "must be 1 to 255 bytes of UTF-8 text without control characters"}}}
	}
	changed, err := s.changeSale(ctx, id, func(ctx context.Context, db conn, now *sale.Sale) error {
		var key any
		if requestKey != "" {
			key = requestKey
			var before int64
			err := one(ctx, db, []any{&before}, "SELECT units FROM restocks WHERE sale_id = $1 AND request_key = $2", id, requestKey)
			switch {
			case err == nil && before == add:
				return nil
			case err == nil:
				return fmt.Errorf("this request key added %d units before: %w", before, sale.ErrConflict)
			case !errors.Is(err, errNoRow):
				return err
			}
		}
		if now.Switch == sale.Closed {
			return fmt.Errorf("the sale is closed: %w", sale.ErrConflict)
		}
		if add > sale.MaxStock-now.Stock {
			return fmt.Errorf("stock may not exceed %d: %w", int64(sale.MaxStock), sale.ErrConflict)
		}
		now.Stock += add
		now.Version++
		if _, err := db.exec(ctx, "INSERT INTO restocks (sale_id, request_key, units) VALUES ($1, $2, $3)", id, key, add); err != nil {
			return err
		}
		return record(ctx, db, actorOf(ctx), "sale.restock", id, fmt.Sprintf("added %d, stock %d, version %d", add, now.Stock, now.Version))
	})
	if err != nil {
		return sale.Sale{}, fmt.Errorf("order: restock sale %s: %w", id, err)
	}
	return changed, nil
}

// changeSale locks a sale, lets decide change its switch, its stock and when it opens, and stores it if the version grew.
func (s *Store) changeSale(ctx context.Context, id string, decide func(context.Context, conn, *sale.Sale) error) (sale.Sale, error) {
	var now sale.Sale
	err := s.change(ctx, func(ctx context.Context, db conn) (err error) {
		if now, _, err = readSale(ctx, db, id, s.engine.dialect().forUpdate); err != nil {
			return err
		}
		version := now.Version
		if err = decide(ctx, db, &now); err != nil || now.Version == version {
			return err
		}
		_, err = db.exec(ctx, "UPDATE sales SET switch = $2, stock = $3, opens_at = $4, version = $5 WHERE id = $1", id, string(now.Switch), now.Stock, now.OpensAt, now.Version)
		return err
	})
	return now, err
}

func (s *Store) change(ctx context.Context, do func(context.Context, conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.engine.within(ctx, writing, func(db conn) error { return do(ctx, db) })
}

func readSale(ctx context.Context, db conn, id, lock string) (found sale.Sale, sold int64, err error) {
	err = sale.ErrNotFound
	if qerr := db.query(ctx, func(r row) error {
		found, sold, err = scanSale(r)
		return err
	}, "SELECT "+saleColumns+" FROM sales WHERE id = $1"+lock, id); qerr != nil {
		return sale.Sale{}, 0, qerr
	}
	return found, sold, err
}
