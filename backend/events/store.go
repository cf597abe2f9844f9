package events

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Store keeps the consumer groups and their dead letters, and reads the outbox. The outbox is filled by package store,
// in the transactions that change orders. Store is safe for concurrent use.
type Store struct {
	db *store.DB

	assigned ScanBound[int64] // the seq at which the search for changes without a position begins; from found
	deleted  ScanBound[int64] // the position up to which this process has deleted
	dropped  ScanBound[int64] // the seq up to which this process has dropped changes, less lateChanges

	mu    sync.Mutex
	found frontier // changes to which this process assigned positions
}

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store { return &Store{db: db} }

// lateChanges is the number of changes below the dropped ones that the next scan reads again, because a change of an
// older transaction may become visible late. One that is still older is delayed by up to WholeScan.
const lateChanges = 200

var typeOfKind = map[int]Type{
	store.OutboxCreated: Created, store.OutboxPaid: Paid, store.OutboxCancelled: Cancelled,
}

func scanEvent(row store.Scanner) (e Event, err error) {
	var kind int
	var diedInQueue bool
	err = row.Scan(&e.Position, &kind, store.Time(&e.At), &e.OrderID, &e.SaleID, &e.Buyer, &e.Slot, &diedInQueue)
	e.Type, e.Was, e.At = typeOfKind[kind], sale.StatusCreated, e.At.Truncate(time.Millisecond)
	e.ID = ID(e.OrderID, e.Status())
	if kind == store.OutboxCreated || kind == store.OutboxCancelled && diedInQueue {
		e.Was = sale.StatusQueued
	}
	return e, err
}

// Changes returns up to limit changes with positions above after, in their order: at least one, if there are any. It
// assigns positions to changes that have none yet. Positions never change, and only DropChanges leaves gaps. The
// positions of two changes of one order are in the order of the changes, within the bounds of a frontier.
func (s *Store) Changes(ctx context.Context, after int64, limit int) (changes []Event, err error) {
	limit = max(limit, 1)
	read := func() error {
		return s.db.View(ctx, "events: changes", func(ctx context.Context, c store.Conn) error {
			changes, err = changesAfter(ctx, c, after, limit)
			return err
		})
	}
	if err := read(); err != nil || len(changes) > 0 {
		return changes, err
	}
	assigned, err := s.assignPositions(ctx, after, limit)
	if err == nil && assigned {
		err = read()
	}
	return changes, err
}

func changesAfter(ctx context.Context, c store.Conn, after int64, limit int) ([]Event, error) {
	d := c.Dialect()
	// A row of the outbox holds all orders to which one transaction made the same change; its position is that of its
	// last order. The join is LEFT so that an order which was deleted by hand does not stop the relay. Subqueries:
	//   - next: the first rows above after
	//   - part: the rows of next that begin within the limit
	//   - change: a line for each order
	changes, err := store.Select(ctx, c, scanEvent, `SELECT change_position, kind, at, order_id, coalesce(sale_id, ''),
			coalesce(buyer, ''), coalesce(slot, 0), coalesce(return_number, 0) = -1
		FROM (SELECT part.position - `+d.Length("part.orders")+` + item.key + 1 AS change_position, part.kind, part.at,
				item.value AS order_id
			FROM (SELECT * FROM (SELECT *,
					sum(`+d.Length("orders")+`) OVER (ORDER BY position) - `+d.Length("orders")+` AS ahead
				FROM (SELECT * FROM outbox WHERE position > $1 ORDER BY position LIMIT $2) AS next) AS counted
				WHERE ahead < $2) AS part, `+d.Elements("part.orders", "item")+`) AS change
		`+d.Lookup("orders", "id", "change.order_id")+`
		WHERE change_position > $1 ORDER BY change_position LIMIT $2`, after, limit)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	return changes, addPrices(ctx, c, changes)
}

// addPrices sets the prices of the changes' sales. Each sale is read once: its row changes with every batch of orders,
// and an old transaction makes PostgreSQL keep all its versions, which a join would read for every order.
func addPrices(ctx context.Context, c store.Conn, changes []Event) error {
	prices := map[string]sale.Price{}
	for _, e := range changes {
		prices[e.SaleID] = sale.Price{}
	}
	err := c.Query(ctx, func(row store.Scanner) error {
		var id string
		var price sale.Price
		err := row.Scan(&id, &price.Amount, &price.Currency)
		prices[id] = price
		return err
	}, "SELECT id, price_amount, currency FROM sales WHERE id "+c.Dialect().In("$1"), slices.Sorted(maps.Keys(prices)))
	for i := range changes {
		changes[i].Price = prices[changes[i].SaleID]
	}
	return err
}

// A transaction that assigns positions waits for the disk, so it assigns positionsAhead times as many as requested, and
// reads up to rowsAhead times as many rows.
const (
	positionsAhead = 20
	rowsAhead      = 4
)

// assignPositions assigns positions above after to the oldest changes without one, and reports whether there were any.
func (s *Store) assignPositions(ctx context.Context, after int64, limit int) (assigned bool, err error) {
	const unassigned = " FROM outbox WHERE position IS NULL AND seq > $1 ORDER BY seq LIMIT $2"
	type record struct {
		Seq      int64 `json:"entry"`
		Position int64 `json:"last_position"`
	}
	var records []record
	now := time.Now()
	from := s.assigned.Next(now)
	assigned, err = s.db.UpdateIf(ctx, "events: assign positions", func(ctx context.Context, c store.Conn) (bool, error) {
		return store.Exists(ctx, c, "SELECT seq"+unassigned, from, 1)
	}, func(ctx context.Context, c store.Conn) error {
		// The lock excludes other transactions that assign positions.
		last, err := lockPosition(ctx, c)
		if err != nil {
			return err
		}
		last = max(last, after) // Redis may hold higher positions than a database that was restored from a backup
		records = nil
		d, end := c.Dialect(), last+positionsAhead*int64(limit)
		if err := c.Query(ctx, func(row store.Scanner) error {
			var seq, n int64
			err := row.Scan(&seq, &n)
			if last < end {
				last += n
				records = append(records, record{seq, last})
			}
			return err
		}, "SELECT seq, "+d.Length("orders")+unassigned, from, rowsAhead*limit); err != nil || len(records) == 0 {
			return err
		}
		// The range of seq is for the planner: without it, PostgreSQL may read the whole outbox.
		if _, err := c.Exec(ctx, "UPDATE outbox SET position = list.last_position FROM ("+
			d.Records("$1", "entry bigint, last_position bigint")+") AS list WHERE outbox.seq = list.entry "+
			"AND outbox.seq BETWEEN $2 AND $3",
			store.JSON(records), records[0].Seq, records[len(records)-1].Seq); err != nil {
			return err
		}
		_, err = c.Exec(ctx, "UPDATE counters SET n = $1 WHERE name = 'event_position'", last)
		return err
	})
	if err == nil {
		numbers := make([]int64, len(records))
		for i, r := range records {
			numbers[i] = r.Seq
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.assigned.Advance(s.found.scanned(numbers, now))
	}
	return assigned, err
}

// lockPosition returns the last position that was assigned, and locks it until the end of the transaction.
func lockPosition(ctx context.Context, c store.Conn) (last int64, err error) {
	const position = "SELECT n FROM counters WHERE name = 'event_position'"
	return store.GetRow(ctx, c, store.Column[int64], position+c.Dialect().ForUpdate)
}

// deleteBatch bounds the rows of the outbox, and the dead letters of a removed group, that one transaction deletes.
const deleteBatch = 20_000

// DropChanges deletes changes without a position if there is no group. It keeps the newest keep changes, and other
// changes of the transaction that made the oldest of these. inUse reports whether the stream is read by others: a group
// that only Redis has, or open pages. The changes are chosen before both checks. A change that becomes visible after
// the checks is therefore kept for a reader that began after them. Dropped changes leave a gap in the positions, which
// a reader notices.
func (s *Store) DropChanges(ctx context.Context, keep int, inUse func(context.Context) (bool, error)) error {
	from := s.dropped.Next(time.Now())
	var upTo int64
	older := func(ctx context.Context, c store.Conn) (found bool, err error) {
		length := c.Dialect().Length("orders")
		err = store.Get(ctx, c, []any{&upTo}, `SELECT coalesce(max(seq), 0) FROM (
				SELECT seq, sum(`+length+`) OVER (ORDER BY seq DESC) - `+length+` AS newer FROM outbox
				WHERE position IS NULL AND seq > $1) AS unassigned WHERE newer >= $2`, from, keep)
		return upTo > 0, err
	}
	_, err := s.db.UpdateIf(ctx, "events: drop changes", older, func(ctx context.Context, c store.Conn) error {
		last, err := lockPosition(ctx, c)
		if err != nil {
			return err
		}
		const unassigned = " FROM outbox WHERE position IS NULL AND seq > $1 AND seq <= $2"
		chosen, err := store.Select(ctx, c, store.Column[int64], "SELECT seq"+unassigned+" ORDER BY seq LIMIT $3",
			from, upTo, deleteBatch)
		if err != nil || len(chosen) == 0 {
			return err
		}
		grouped, err := store.Exists(ctx, c, "SELECT name FROM event_groups LIMIT 1")
		if err == nil && !grouped {
			grouped, err = inUse(ctx)
		}
		if err != nil || grouped {
			return err
		}
		upTo = chosen[len(chosen)-1]
		if _, err := c.Exec(ctx, "DELETE"+unassigned+" AND seq "+c.Dialect().In("$3"), from, upTo, chosen); err != nil {
			return err
		}
		_, err = c.Exec(ctx, "UPDATE counters SET n = $1 WHERE name = 'event_position'", last+1)
		return err
	})
	if err == nil && upTo > 0 {
		s.dropped.Advance(upTo - lateChanges)
	}
	return err
}

// DeleteChanges deletes the changes up to a position, which every group has handled. Changes that were made in one
// transaction are deleted together, with the last of them. After an error, a part may be deleted.
func (s *Store) DeleteChanges(ctx context.Context, upTo int64) error {
	const op = "events: delete changes"
	for from := s.deleted.Next(time.Now()); ; {
		last, err := store.ViewRow(ctx, s.db, op, store.Column[int64], `SELECT coalesce(max(position), 0) FROM (
			SELECT position FROM outbox WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3
		) AS next`, from, upTo, deleteBatch)
		if err != nil {
			return err
		}
		if last == 0 {
			s.deleted.Advance(upTo)
			return nil
		}
		const remove = "DELETE FROM outbox WHERE position > $1 AND position <= $2"
		if _, err := store.UpdateRows(ctx, s.db, op, remove, from, last); err != nil {
			return err
		}
		from = last
	}
}

// Unrelayed returns the age of the oldest change that has no position or one above after, which is the lag of the
// relay; 0 if there is none.
func (s *Store) Unrelayed(ctx context.Context, after int64) (time.Duration, error) {
	age, err := store.ViewRow(ctx, s.db, "events: unrelayed changes", func(row store.Scanner) (time.Duration, error) {
		var at, now time.Time
		err := row.Scan(store.Time(&at), store.Time(&now))
		return max(now.Sub(at), 0), err
	}, "SELECT at, "+s.db.Dialect().Now+` FROM (
			SELECT * FROM (SELECT at FROM outbox WHERE position IS NULL ORDER BY seq LIMIT 1) AS unassigned
			UNION ALL SELECT * FROM (SELECT at FROM outbox WHERE position > $1 ORDER BY position LIMIT 1) AS unrelayed
		) AS oldest ORDER BY at LIMIT 1`, after)
	if isNotFound(err) {
		return 0, nil
	}
	return age, err
}

// RelayedThrough returns a position up to which every group has handled all changes: that of the last deleted change.
// The groups may have handled more.
func (s *Store) RelayedThrough(ctx context.Context) (int64, error) {
	return store.ViewRow(ctx, s.db, "events: relayed position", store.Column[int64], `SELECT coalesce((
			SELECT position - `+s.db.Dialect().Length("orders")+` FROM outbox WHERE position IS NOT NULL
			ORDER BY position LIMIT 1), n) FROM counters WHERE name = 'event_position'`)
}
