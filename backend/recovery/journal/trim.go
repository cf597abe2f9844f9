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

// Rows tells which orders are rows (order.Store).
type Rows interface {
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

const (
	// checkAtOnce is how many orders one question to SQL is about.
	rowsPerQuery = 5000
	// carried is up to how many orders are written again, into the present segment, so that an older one can go.
	maxStragglers = 1000
	// ripe is how old a segment must be before it is left although it is not full: most of its orders are rows by then.
	maxSegmentAge = 30 * time.Second
)

// Orders calls each for every order in the journal, the oldest first; one may come twice. broken counts the lines that cannot be read.
func (j *Journal) Orders(each func(sale.Order)) (broken int, err error) {
	j.mu.Lock()
	numbers, err := j.segments()
	j.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("journal: %w", err)
	}
	for _, n := range numbers {
		bad, err := j.readSegment(n, each)
		broken += bad
		if err != nil {
			return broken, fmt.Errorf("journal: %w", err)
		}
	}
	return broken, nil
}

func (j *Journal) readSegment(n int64, each func(sale.Order)) (int, error) {
	f, err := os.Open(j.path(n))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // trimmed meanwhile
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return read(f, each)
}

// Trim drops the segments whose orders are all rows, the oldest first, and so bounds the journal by what waits in the queue. A few stragglers, such as dead
// letters, are written again into the present segment. An error is that of the files, or wraps sale.ErrUnavailable.
func (j *Journal) Trim(ctx context.Context, rows Rows) error {
	j.mu.Lock()
	if j.file != nil && j.size > 0 && time.Since(j.opened) > maxSegmentAge {
		if err := j.startSegment(); err != nil {
			j.mu.Unlock()
			return fmt.Errorf("journal: trim: %w", err)
		}
	}
	numbers, err := j.segments()
	present := j.number
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("journal: trim: %w", err)
	}
	for _, n := range numbers {
		if n >= present {
			return nil
		}
		gone, err := j.trimSegment(ctx, n, rows)
		if err != nil {
			return fmt.Errorf("journal: trim: %w", err)
		}
		if !gone {
			return nil // the younger ones have no better chance
		}
	}
	return nil
}

func (j *Journal) trimSegment(ctx context.Context, n int64, rows Rows) (gone bool, err error) {
	var orders []sale.Order
	if _, err := j.readSegment(n, func(o sale.Order) { orders = append(orders, o) }); err != nil {
		return false, err
	}
	var stragglers []sale.Order
	for part := range slices.Chunk(orders, rowsPerQuery) {
		ids := make([]sale.OrderID, len(part))
		for i, o := range part {
			ids[i] = o.ID
		}
		are, err := rows.Statuses(ctx, ids)
		if err != nil {
			return false, err
		}
		for _, o := range part {
			if _, isRow := are[o.ID]; !isRow {
				stragglers = append(stragglers, o)
			}
		}
		if len(stragglers) > maxStragglers {
			return false, nil
		}
	}
	if len(stragglers) > 0 {
		if err := j.Append(stragglers...); err != nil {
			return false, err
		}
		if err := j.flush(); err != nil {
			return false, err
		}
	}
	return true, os.Remove(j.path(n))
}
