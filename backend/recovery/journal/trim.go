package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sluice/backend/sale"
)

// Rows returns the statuses of the orders that SQL has a record of: rows and dropped orders (store.Store).
type Rows interface {
	Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

// TrimStore is the part of SQL that Trim needs (store.Store and Registry).
type TrimStore interface {
	Rows
	RemovedSales(ctx context.Context, ids []string) ([]string, error)
}

// NotRows returns the orders that SQL has no record of.
func NotRows(ctx context.Context, rows Rows, orders []sale.Order) (missing []sale.Order, err error) {
	for part := range slices.Chunk(orders, rowsPerQuery) {
		ids := make([]sale.OrderID, len(part))
		for i, o := range part {
			ids[i] = o.ID
		}
		statuses, err := rows.Recorded(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, o := range part {
			if _, isRow := statuses[o.ID]; !isRow {
				missing = append(missing, o)
			}
		}
	}
	return missing, nil
}

const (
	// rowsPerQuery is the number of orders per query to SQL.
	rowsPerQuery = 5000
	// maxStragglers bounds the orders that are copied to the current segment so that an older one can be deleted.
	maxStragglers = 1000
	// maxKept is the number of segments with more than maxStragglers orders that are not rows after which a Trim ends. The
	// next one continues there.
	maxKept = 3
	// maxTrim is the time after which a Trim begins no further segment, except in tests.
	maxTrim = time.Second
	// maxSegmentAge is the age from which a segment is closed although it is not full; most of its orders are rows then.
	maxSegmentAge = 30 * time.Second
)

// Orders calls each for every order in the journal, oldest first. It can yield an order twice. broken is the number of
// unreadable records. If a segment cannot be read, it continues with the next one, and returns the errors.
func (j *Journal) Orders(each func(sale.Order)) (broken int, err error) {
	j.mu.Lock()
	numbers, err := j.segments()
	j.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	var errs []error
	for _, n := range numbers {
		bad, err := j.readSegment(n, each)
		broken += bad
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return broken, fmt.Errorf("journal: %w", err)
	}
	return broken, nil
}

func (j *Journal) readSegment(n int64, each func(sale.Order)) (int, error) {
	f, err := os.Open(j.path(n))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // deleted by Trim
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return read(f, each)
}

// Trim deletes segments without queued orders, oldest first, so the size of the journal follows the length of the
// queue. If a segment has at most maxStragglers orders that are not rows, such as dead letters, Trim copies them to the
// current segment before it deletes the old one. A segment with more of them stays, and so does one that cannot be
// read. Trim ends after three segments with more of them, so that a long queue costs few queries, or after a second, so
// that its caller notices a rebuild. The next call continues. It returns file errors, or an error that wraps
// sale.ErrUnavailable.
func (j *Journal) Trim(ctx context.Context, store TrimStore) error {
	j.mu.Lock()
	if j.file != nil && j.size > 0 && time.Since(j.opened) > maxSegmentAge {
		if err := j.startSegment(); err != nil {
			j.mu.Unlock()
			return fmt.Errorf("journal: trim: %w", err)
		}
	}
	numbers, err := j.segments()
	current, first := j.number, j.trimFrom
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("journal: trim: %w", err)
	}
	var unreadable []error
	began, kept, next := time.Now(), 0, int64(0)
	for _, n := range numbers {
		if n < first {
			continue
		}
		if n >= current {
			break
		}
		missing, unread, err := j.missing(ctx, n, store)
		if err != nil {
			return fmt.Errorf("journal: trim: %w", err)
		}
		if unread != nil {
			unreadable = append(unreadable, unread)
			continue
		}
		gone, err := j.trimSegment(n, missing)
		if err != nil {
			return fmt.Errorf("journal: trim: %w", err)
		}
		if !gone {
			kept++
		}
		if kept == maxKept || time.Since(began) > j.trimTime {
			next = n + 1
			break
		}
	}
	j.mu.Lock()
	j.trimFrom = next
	j.mu.Unlock()
	if err := errors.Join(unreadable...); err != nil {
		return fmt.Errorf("journal: trim: %w", err)
	}
	return nil
}

// missing returns the orders of a segment that SQL has no record of, without those of archived sales and removed
// rehearsals. When it has found more than maxStragglers, it does not look for others. It holds few orders in memory at
// a time. unread is the error of a segment that cannot be read; err is that of SQL.
func (j *Journal) missing(ctx context.Context, n int64, store TrimStore) (missing []sale.Order, unread, err error) {
	part := make([]sale.Order, 0, rowsPerQuery)
	check := func() {
		if err == nil && len(part) > 0 && len(missing) <= maxStragglers {
			var some []sale.Order
			if some, err = NotRows(ctx, store, part); err == nil {
				some, err = withoutRemoved(ctx, store, some)
			}
			missing = append(missing, some...)
		}
		part = part[:0]
	}
	_, unread = j.readSegment(n, func(o sale.Order) {
		if part = append(part, o); len(part) == rowsPerQuery {
			check()
		}
	})
	check()
	return missing, unread, err
}

// trimSegment deletes a segment, unless it has many stragglers.
func (j *Journal) trimSegment(n int64, stragglers []sale.Order) (gone bool, err error) {
	if len(stragglers) > maxStragglers {
		return false, nil
	}
	if len(stragglers) > 0 {
		turn, err := j.append(stragglers)
		if err == nil {
			err = j.sync(turn) // not flush, which succeeds if a later write is on disk, even if this one is lost
		}
		if err != nil {
			return false, err
		}
	}
	return true, os.Remove(j.path(n))
}

// withoutRemoved returns the orders without those of archived sales and removed rehearsals.
func withoutRemoved(ctx context.Context, store TrimStore, orders []sale.Order) ([]sale.Order, error) {
	var ids []string
	for _, o := range orders {
		ids = append(ids, o.SaleID)
	}
	slices.Sort(ids)
	removed, err := store.RemovedSales(ctx, slices.Compact(ids))
	return slices.DeleteFunc(orders, func(o sale.Order) bool { return slices.Contains(removed, o.SaleID) }), err
}
