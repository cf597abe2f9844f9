package store

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Archive is an archived sale. Its numbers count the rows that were removed.
type Archive struct {
	Orders    int64
	Paid      int64 // of Orders
	Cancelled int64 // of Orders
	Payments  int64 // callbacks of the payment provider
	BegunAt   time.Time
	EndedAt   time.Time // zero: rows are left
	Parts     []ArchivePart
}

// ArchivePart is a file of an archived sale. If a row is in several parts, the last one is current.
type ArchivePart struct {
	Number   int // from 1
	File     string
	SHA256   string // of the file, hexadecimal
	Orders   int64
	Payments int64
}

// Archive returns an archived sale with its parts, or sale.ErrNotFound if it is not archived.
func (s *Store) Archive(ctx context.Context, saleID string) (Archive, error) {
	return Value(ctx, s.View, "store: archive of sale "+saleID, func(ctx context.Context, c Conn) (a Archive, err error) {
		err = Get(ctx, c, []any{&a.Orders, &a.Paid, &a.Cancelled, &a.Payments, Time(&a.BegunAt), Time(&a.EndedAt)},
			"SELECT orders, paid, cancelled, payments, begun_at, ended_at FROM archives WHERE sale_id = $1", saleID)
		if err != nil {
			return a, err
		}
		a.Parts, err = Select(ctx, c, func(row Scanner) (p ArchivePart, err error) {
			return p, row.Scan(&p.Number, &p.File, &p.SHA256, &p.Orders, &p.Payments)
		}, "SELECT part, file, sha256, orders, payments FROM archive_parts WHERE sale_id = $1 ORDER BY part", saleID)
		return a, err
	})
}

// ArchivedSales returns the ids of the sales that are archived, or whose archiving is in progress.
func (s *Store) ArchivedSales(ctx context.Context) ([]string, error) {
	return ViewRows(ctx, s.DB, "store: archived sales", Column[string], "SELECT sale_id FROM archives")
}

// EndedSales returns the ids of the sales that ended before an instant and have rows to archive, oldest first. A sale
// ends when it is closed, or at its closing time. Rehearsals are left out.
func (s *Store) EndedSales(ctx context.Context, before time.Time) (ids []string, err error) {
	err = s.View(ctx, "store: ended sales", func(ctx context.Context, c Conn) error {
		return c.Query(ctx, func(row Scanner) error {
			var id string
			var ended, closes time.Time
			err := row.Scan(&id, Time(&ended), Time(&closes))
			if ended.IsZero() || !closes.IsZero() && closes.Before(ended) {
				ended = closes
			}
			if !ended.IsZero() && ended.Before(before) && !sale.IsRehearsal(id) {
				ids = append(ids, id)
			}
			return err
		}, endedSales(c.Dialect()))
	})
	return ids, err
}

// endedSales returns the query of EndedSales. It reads the closings of all sales in one subquery, because a search per
// sale would read the whole log each time: the column target has another collation than the id of a sale, so PostgreSQL
// could not use its index.
func endedSales(d Dialect) string {
	return `SELECT id, closed.at, closes_at FROM sales LEFT JOIN
		(SELECT target, max(at) AS at FROM admin_log WHERE action = 'sale.close' GROUP BY target) AS closed ON target = id
		WHERE (switch = 'closed' OR closes_at <= ` + d.Now + `)
			AND id NOT IN (SELECT sale_id FROM archives WHERE ended_at IS NOT NULL)
		ORDER BY created_at, id`
}

// Unsettled returns the reasons why the rows of a sale cannot be archived yet; none if they can. Error:
// sale.ErrNotFound.
func (s *Store) Unsettled(ctx context.Context, saleID string) ([]string, error) {
	op := "store: unsettled rows of sale " + saleID
	return Value(ctx, s.View, op, func(ctx context.Context, c Conn) ([]string, error) {
		return unsettled(ctx, c, saleID)
	})
}

func unsettled(ctx context.Context, c Conn, saleID string) ([]string, error) {
	var closed bool
	var reasons []string
	d := c.Dialect()
	err := Get(ctx, c, []any{&closed},
		"SELECT switch = 'closed' OR coalesce(closes_at <= "+d.Now+", false) FROM sales WHERE id = $1", saleID)
	if err != nil {
		return nil, err
	}
	if !closed {
		reasons = append(reasons, "it is not closed")
	}
	for _, condition := range []struct{ reason, query string }{
		{"it has unpaid orders whose hold has not ended",
			"SELECT 1 FROM orders WHERE sale_id = $1 AND status = 'created' AND due_at IS NOT NULL LIMIT 1"},
		{"units of its cancelled orders are not back in Redis", "SELECT 1 FROM orders WHERE sale_id = $1 AND " + isReturning +
			" LIMIT 1"},
		{"it has open refunds (sluice payment list)",
			"SELECT 1 FROM payments WHERE sale_id = $1 AND refund = 1 AND settled_at IS NULL LIMIT 1"},
		{"not every group of consumers has handled its order events (sluice group list)", "SELECT 1 FROM outbox, " +
			d.Elements("outbox.orders", "item") + " JOIN orders ON orders.id = item.value WHERE orders.sale_id = $1" +
			" AND EXISTS (SELECT 1 FROM event_groups) LIMIT 1"}, // without a group, the outbox keeps the newest changes, which need not be handled
	} {
		found, err := Exists(ctx, c, condition.query, saleID)
		if err != nil {
			return nil, err
		}
		if found {
			reasons = append(reasons, condition.reason)
		}
	}
	return reasons, nil
}

// BeginPart records a verified file of a sale's rows. The rows in the file may be removed from then on. The first part
// marks the sale as archived, closes it and logs that; from then on SaleSummaries omits it. Errors: sale.ErrConflict if
// its rows cannot be archived, see Unsettled, or if another run has recorded this part; sale.ErrNotFound.
func (s *Store) BeginPart(ctx context.Context, saleID string, p ArchivePart) error {
	return s.Update(ctx, "store: archive sale "+saleID, func(ctx context.Context, c Conn) error {
		if _, err := readSale(ctx, c, saleID, c.Dialect().ForUpdate); err != nil {
			return err
		}
		var parts int
		err := Get(ctx, c, []any{&parts}, "SELECT count(*) FROM archive_parts WHERE sale_id = $1", saleID)
		if err == nil && parts != p.Number-1 {
			err = fmt.Errorf("another run archives it, too: %w", sale.ErrConflict)
		}
		if err != nil {
			return err
		}
		reasons, err := unsettled(ctx, c, saleID) // again for later parts: a late payment adds rows and events
		if err == nil && len(reasons) > 0 {
			err = fmt.Errorf("%s: %w", reasons[0], sale.ErrConflict)
		}
		if err != nil {
			return err
		}
		now := c.Dialect().Now
		if p.Number == 1 {
			if _, err := c.Exec(ctx, "INSERT INTO archives (sale_id, begun_at) VALUES ($1, "+now+")", saleID); err != nil {
				return err
			}
			const closeSale = `UPDATE sales SET archived = 1, switch = 'closed',
				version = version + CASE WHEN switch = 'closed' THEN 0 ELSE 1 END WHERE id = $1`
			if _, err := c.Exec(ctx, closeSale, saleID); err != nil {
				return err
			}
			if err := logSale(ctx, c, "sale.archive", saleID, p.File); err != nil {
				return err
			}
		}
		_, err = c.Exec(ctx, `INSERT INTO archive_parts (sale_id, part, file, sha256, orders, payments, at)
			VALUES ($1, $2, $3, $4, $5, $6, `+now+")", saleID, p.Number, p.File, p.SHA256, p.Orders, p.Payments)
		return err
	})
}

// Archived is a row of a file.
type Archived struct {
	ID   int64 // of the order, or the number of the payment
	JSON string
}

// storedRow is a row as it would be in a file.
type storedRow struct {
	Archived
	counts Archive // of the row alone
}

// RemoveOrders deletes those rows of an archived sale that are equal to the file's, and counts them in its Archive.
// Other rows stay for the next part.
func (s *Store) RemoveOrders(ctx context.Context, saleID string, rows []Archived) (int64, error) {
	return s.remove(ctx, saleID, rows, "orders", rowColumns, func(row Scanner) (storedRow, error) {
		o, err := scanOrderRow(row)
		counts := Archive{Orders: 1}
		switch o.Status {
		case sale.StatusPaid:
			counts.Paid = 1
		case sale.StatusCancelled:
			counts.Cancelled = 1
		}
		return storedRow{Archived{int64(o.ID), JSON(o)}, counts}, err
	})
}

// RemovePayments is RemoveOrders for payments.
func (s *Store) RemovePayments(ctx context.Context, saleID string, rows []Archived) (int64, error) {
	return s.remove(ctx, saleID, rows, "payments", callbackColumns, func(row Scanner) (storedRow, error) {
		p, err := scanCallback(row)
		return storedRow{Archived{p.Number, JSON(p)}, Archive{Payments: 1}}, err
	})
}

// remove deletes those rows of a table that are equal to the file's, adds them to the numbers of the Archive, and
// returns how many it deleted.
func (s *Store) remove(
	ctx context.Context, saleID string, rows []Archived, table, columns string, scan func(Scanner) (storedRow, error),
) (int64, error) {
	inFile := make(map[Archived]bool, len(rows))
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i], inFile[row] = row.ID, true
	}
	op := "store: remove archived rows of sale " + saleID
	return Value(ctx, s.Update, op, func(ctx context.Context, c Conn) (int64, error) {
		d := c.Dialect()
		stored, err := Select(ctx, c, scan, "SELECT "+columns+" FROM "+table+" WHERE sale_id = $1 AND id "+d.In("$2")+
			d.ForUpdate, saleID, ids)
		if err != nil {
			return 0, err
		}
		var equal []int64
		var sum Archive
		for _, row := range stored {
			if !inFile[row.Archived] {
				continue
			}
			equal = append(equal, row.ID)
			sum.Orders += row.counts.Orders
			sum.Paid += row.counts.Paid
			sum.Cancelled += row.counts.Cancelled
			sum.Payments += row.counts.Payments
		}
		if len(equal) == 0 {
			return 0, nil
		}
		removed, err := c.Exec(ctx, "DELETE FROM "+table+" WHERE id "+d.In("$1"), equal)
		if err == nil && removed != int64(len(equal)) { // impossible, as the rows are locked
			err = unavailable(fmt.Errorf("%d of %d rows could be removed", removed, len(equal)))
		}
		if err != nil {
			return 0, err
		}
		n, err := c.Exec(ctx, `UPDATE archives SET orders = orders + $2, paid = paid + $3, cancelled = cancelled + $4,
			payments = payments + $5 WHERE sale_id = $1`, saleID, sum.Orders, sum.Paid, sum.Cancelled, sum.Payments)
		if err == nil && n == 0 {
			err = fmt.Errorf("it is not archived: %w", sale.ErrConflict)
		}
		return removed, err
	})
}

// EndArchive records that no row of an archived sale is left. It returns sale.ErrConflict if there are rows.
func (s *Store) EndArchive(ctx context.Context, saleID string) error {
	return s.Update(ctx, "store: end the archive of sale "+saleID, func(ctx context.Context, c Conn) error {
		for _, table := range []string{"orders", "payments"} {
			left, err := Exists(ctx, c, "SELECT 1 FROM "+table+" WHERE sale_id = $1 LIMIT 1", saleID)
			if err == nil && left {
				err = fmt.Errorf("the table %s has rows of it: %w", table, sale.ErrConflict)
			}
			if err != nil {
				return err
			}
		}
		end := "UPDATE archives SET ended_at = " + c.Dialect().Now + " WHERE sale_id = $1 AND ended_at IS NULL"
		_, err := c.Exec(ctx, end, saleID)
		return err
	})
}
