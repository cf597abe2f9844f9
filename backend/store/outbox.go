package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// The outbox: each transaction that changes orders writes down which, and a relay reads it and tells other services. Whoever reads gives the changes
// their positions, in a transaction of its own that holds a lock; so positions have no gaps, never change, and two changes of
// one order have theirs in the order in which they were made.

// Change is one change of one order.
type Change struct {
	Position int64       // from 1, in the order in which changes are told
	Status   sale.Status // that the order got: created, paid or cancelled
	Was      sale.Status // before; queued for one that died in the queue and was cancelled without being sold
	At       time.Time   // by the database's clock
	OrderID  sale.OrderID
	SaleID   string
	Buyer    string
	Nth      int
	Price    sale.Price
}

// The kinds of change, as the tables have them.
const (
	kindCreated   = 1
	kindPaid      = 2
	kindCancelled = 3
)

var statusOfKind = map[int]sale.Status{kindCreated: sale.StatusCreated, kindPaid: sale.StatusPaid, kindCancelled: sale.StatusCancelled}

// OnChange makes Open's store call fn after each transaction that changed orders. It is called by the goroutine that made the change, so it must return at once;
// it may be lost with the process, so whoever waits for it also looks by itself.
func OnChange(fn func()) Option { return func(s *Store) { s.changed = fn } }

func (s *Store) tell() {
	if s.changed != nil {
		s.changed()
	}
}

// note writes changes in the outbox, from where other services hear of them. Of a rehearsal nobody hears: what is not in the outbox cannot be told by any relay, of
// whatever version.
func (s *Store) note(ctx context.Context, db conn, kind int, orders ...sale.Order) error {
	ids := make([]sale.OrderID, 0, len(orders))
	for _, o := range orders {
		if !sale.IsRehearsal(o.SaleID) {
			ids = append(ids, o.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := db.exec(ctx, "INSERT INTO outbox (kind, orders, at) VALUES ($1, $2, "+s.engine.dialect().now+")", kind, numbers(ids))
	return err
}

// Changes returns changes with positions above after, in their order: some, if there are any, and no more than limit. Those that have no position
// yet get one, above after too. The same call again returns the same changes, and perhaps more.
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]Change, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	limit = max(limit, 1)
	changes, err := s.changesAfter(ctx, after, limit)
	if err == nil && len(changes) == 0 {
		var given bool
		if given, err = s.position(ctx, after, limit); err == nil && given {
			changes, err = s.changesAfter(ctx, after, limit)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("order: changes: %w", err)
	}
	return changes, nil
}

func (s *Store) changesAfter(ctx context.Context, after int64, limit int) ([]Change, error) {
	d := s.engine.dialect()
	var changes []Change
	// An order that somebody has deleted by hand leaves its change behind: the relay must get past it.
	err := s.engine.direct().query(ctx, func(r row) error {
		var c Change
		var kind int
		var id, returned int64
		var at instant
		if err := r.Scan(&c.Position, &kind, &at, &id, &c.SaleID, &c.Buyer, &c.Nth, &returned, &c.Price.Amount, &c.Price.Currency); err != nil {
			return err
		}
		c.Status, c.At, c.OrderID = statusOfKind[kind], at.Time, sale.OrderID(id)
		switch {
		case kind == kindCreated, kind == kindCancelled && returned == -1:
			c.Was = sale.StatusQueued
		default:
			c.Was = sale.StatusCreated
		}
		changes = append(changes, c)
		return nil
	}, `SELECT place, kind, at, number, coalesce(sale_id, ''), coalesce(buyer, ''), coalesce(nth, 0), coalesce(returned, 0), coalesce(price_amount, 0), coalesce(currency, '')
		FROM (SELECT part.position - `+d.count+` + `+d.nth+` AS place, part.kind, part.at, item.value AS number
			FROM (SELECT * FROM (SELECT *, sum(`+d.count+`) OVER (ORDER BY position) - `+d.count+` AS ahead
				FROM (SELECT * FROM outbox WHERE position > $1 ORDER BY position LIMIT $2) AS next) AS next WHERE ahead < $2) AS part, `+d.items+`) AS told
		LEFT JOIN orders ON orders.id = told.number LEFT JOIN sales ON sales.id = orders.sale_id
		WHERE place > $1 ORDER BY place LIMIT $2`, after, limit)
	return changes, err
}

// A transaction that gives positions waits for the disk, so it gives them to so many times the changes that are asked for, if there are as many, and looks at so many times the rows.
const (
	positionsAhead = 20
	rowsAhead      = 4
)

// position gives the oldest changes without a position theirs: more than limit of them, so that the next calls find them.
func (s *Store) position(ctx context.Context, after int64, limit int) (given bool, err error) {
	const unplaced = " FROM outbox WHERE position IS NULL ORDER BY seq LIMIT $1"
	d := s.engine.dialect()
	err = one(ctx, s.engine.direct(), []any{new(int64)}, "SELECT seq"+unplaced, 1)
	if errors.Is(err, errNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, s.engine.within(ctx, writing, func(db conn) error {
		// Locks out everybody else who would give positions. Redis may know of higher ones than a database that was restored from a copy.
		if _, err := db.exec(ctx, "UPDATE counters SET n = CASE WHEN n < $1 THEN $1 ELSE n END WHERE name = 'event'", after); err != nil {
			return err
		}
		var last int64
		if err := one(ctx, db, []any{&last}, "SELECT n FROM counters WHERE name = 'event'"); err != nil {
			return err
		}
		var places [][2]int64
		sum := int64(0)
		if err := db.query(ctx, func(r row) error {
			var seq, n int64
			err := r.Scan(&seq, &n)
			if sum < positionsAhead*int64(limit) {
				sum += n
				places = append(places, [2]int64{seq, last + sum})
			}
			return err
		}, "SELECT seq, "+d.count+unplaced, rowsAhead*limit); err != nil || len(places) == 0 {
			return err
		}
		list, err := json.Marshal(places)
		if err != nil {
			return err
		}
		if _, err := db.exec(ctx, "UPDATE outbox SET position = list.b FROM ("+fmt.Sprintf(d.pairs, "$1")+") AS list WHERE outbox.seq = list.a", string(list)); err != nil {
			return err
		}
		_, err = db.exec(ctx, "UPDATE counters SET n = $1 WHERE name = 'event'", last+sum)
		return err
	})
}

// ForgetChanges deletes the changes up to a position: everybody is done with them. Changes that were made together go together, with the last of them.
func (s *Store) ForgetChanges(ctx context.Context, upTo int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := one(ctx, s.engine.direct(), []any{new(int64)}, "SELECT seq FROM outbox WHERE position <= $1 LIMIT 1", upTo)
	if err == nil {
		err = s.engine.within(ctx, writing, func(db conn) error {
			_, err := db.exec(ctx, "DELETE FROM outbox WHERE position <= $1", upTo)
			return err
		})
	}
	if err != nil && !errors.Is(err, errNoRow) {
		return fmt.Errorf("order: forget changes: %w", err)
	}
	return nil
}

// Untold tells how old the oldest change is that has a position above after or none: how far those who are told lag behind. Zero when all are told.
func (s *Store) Untold(ctx context.Context, after int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var oldest time.Duration
	for _, which := range []string{"position IS NULL AND $1 >= 0 ORDER BY seq", "position > $1 ORDER BY position"} {
		var at, now instant
		err := one(ctx, s.engine.direct(), []any{&at, &now}, "SELECT at, "+s.engine.dialect().now+" FROM outbox WHERE "+which+" LIMIT 1", after)
		if err != nil && !errors.Is(err, errNoRow) {
			return 0, fmt.Errorf("order: untold changes: %w", err)
		}
		if err == nil {
			oldest = max(oldest, now.Sub(at.Time))
		}
	}
	return oldest, nil
}

// ToldAll is the position up to which every group is done with all changes, as far as this database knows: what was forgotten.
func (s *Store) ToldAll(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var upTo int64
	if err := one(ctx, s.engine.direct(), []any{&upTo}, `SELECT coalesce((SELECT position - `+s.engine.dialect().count+` FROM outbox WHERE position IS NOT NULL ORDER BY position LIMIT 1), n)
		FROM counters WHERE name = 'event'`); err != nil {
		return 0, fmt.Errorf("order: told all: %w", err)
	}
	return upTo, nil
}
