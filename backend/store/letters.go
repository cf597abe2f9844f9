package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Letter is an event that a group could not handle.
type Letter struct {
	Group      string
	EventID    string // unique within the group
	Position   int64  // in the stream when it died; 0: unknown
	Body       string // as it was in the stream
	Reason     string
	Deliveries int64
	DiedAt     time.Time
	Retrying   bool // a person wants it run again, and that has not ended yet
}

// Bury keeps an event that a group could not handle. An event that is there already, from an earlier attempt, gets the new reason, and is no longer retried.
func (s *Store) Bury(ctx context.Context, l Letter) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error { return bury(ctx, db, l) })
	if err != nil {
		return fmt.Errorf("order: bury event %s of group %s: %w", l.EventID, l.Group, err)
	}
	return nil
}

func bury(ctx context.Context, db conn, l Letter) error {
	_, err := db.exec(ctx, `INSERT INTO event_dead (group_name, event_id, position, body, reason, deliveries) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (group_name, event_id) DO UPDATE SET reason = excluded.reason, retry = 0, leased_until = NULL,
			deliveries = CASE WHEN event_dead.deliveries < excluded.deliveries THEN excluded.deliveries ELSE event_dead.deliveries END`,
		l.Group, storable(l.EventID), l.Position, storable(l.Body), storable(l.Reason), l.Deliveries)
	return err
}

// Unbury drops a letter whose event was handled after all. To do it again changes nothing.
func (s *Store) Unbury(ctx context.Context, group, eventID string) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		_, err := db.exec(ctx, "DELETE FROM event_dead WHERE group_name = $1 AND event_id = $2", group, eventID)
		return err
	})
	if err != nil {
		return fmt.Errorf("order: unbury event %s of group %s: %w", eventID, group, err)
	}
	return nil
}

// LetterQuery selects dead letters of a group.
type LetterQuery struct {
	Group   string
	EventID string // this one only
	After   string // higher event ids only
	Limit   int    // 1 to 1000; 0: 100
}

const letterColumns = "group_name, event_id, position, body, reason, deliveries, died_at, retry"

func scanLetter(r row) (Letter, error) {
	var l Letter
	var at instant
	var retry int64
	err := r.Scan(&l.Group, &l.EventID, &l.Position, &l.Body, &l.Reason, &l.Deliveries, &at, &retry)
	l.DiedAt, l.Retrying = at.Time, retry == 1
	return l, err
}

// Letters returns one page of a group's dead letters, by event id.
func (s *Store) Letters(ctx context.Context, q LetterQuery) ([]Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var f filter
	f.add("group_name = ?", q.Group)
	f.add("event_id > ?", q.After)
	if q.EventID != "" {
		f.add("event_id = ?", q.EventID)
	}
	f.args = append(f.args, pageOf(q.Limit))
	var letters []Letter
	err := s.engine.direct().query(ctx, func(r row) error {
		l, err := scanLetter(r)
		letters = append(letters, l)
		return err
	}, "SELECT "+letterColumns+" FROM event_dead WHERE "+f.where()+fmt.Sprintf(" ORDER BY event_id LIMIT $%d", len(f.args)), f.args...)
	if err != nil {
		return nil, fmt.Errorf("order: dead letters of group %s: %w", q.Group, err)
	}
	return letters, nil
}

// CountLetters tells how many dead letters each group has; a group without any is missing.
func (s *Store) CountLetters(ctx context.Context) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	counts := map[string]int64{}
	err := s.engine.direct().query(ctx, func(r row) error {
		var name string
		var n int64
		err := r.Scan(&name, &n)
		counts[name] = n
		return err
	}, "SELECT group_name, count(*) FROM event_dead GROUP BY group_name")
	if err != nil {
		return nil, fmt.Errorf("order: count dead letters: %w", err)
	}
	return counts, nil
}

// RetryLetter asks for a dead letter to be run again, and writes it in the desk log with the actor of the context. To ask again changes nothing. Error: sale.ErrNotFound.
func (s *Store) RetryLetter(ctx context.Context, group, eventID string) error {
	return s.desk(ctx, "event.retry", group, eventID, func(ctx context.Context, db conn) (int64, error) {
		return db.exec(ctx, "UPDATE event_dead SET retry = 1 WHERE group_name = $1 AND event_id = $2 AND retry = 0", group, eventID)
	})
}

// DropLetter gives a dead letter up, and writes it in the desk log with the actor of the context. Errors: sale.ErrNotFound; sale.ErrConflict while it is run again.
func (s *Store) DropLetter(ctx context.Context, group, eventID string) error {
	return s.desk(ctx, "event.drop", group, eventID, func(ctx context.Context, db conn) (int64, error) {
		n, err := db.exec(ctx, "DELETE FROM event_dead WHERE group_name = $1 AND event_id = $2 AND (leased_until IS NULL OR leased_until < "+s.engine.dialect().now+")", group, eventID)
		if err == nil && n == 0 {
			if err = one(ctx, db, []any{new(int64)}, "SELECT 1 FROM event_dead WHERE group_name = $1 AND event_id = $2", group, eventID); err == nil {
				err = fmt.Errorf("it is being run again: %w", sale.ErrConflict)
			} else if errors.Is(err, errNoRow) {
				err = sale.ErrNotFound
			}
		}
		return n, err
	})
}

func (s *Store) desk(ctx context.Context, action, group, eventID string, do func(context.Context, conn) (int64, error)) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		n, err := do(ctx, db)
		if err != nil {
			return err
		}
		if n == 0 {
			err := one(ctx, db, []any{new(int64)}, "SELECT 1 FROM event_dead WHERE group_name = $1 AND event_id = $2", group, eventID)
			if errors.Is(err, errNoRow) {
				err = sale.ErrNotFound
			}
			return err
		}
		return record(ctx, db, actorOf(ctx), action, eventID, "group "+group+because(ctx))
	})
	if err != nil {
		return fmt.Errorf("order: %s %s of group %s: %w", action, eventID, group, err)
	}
	return nil
}

// LeaseRetries takes up to limit letters of a group that are to be run again, for as long as the lease; somebody else gets them when it runs out.
func (s *Store) LeaseRetries(ctx context.Context, group string, lease time.Duration, limit int) ([]Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	d := s.engine.dialect()
	wanted := " FROM event_dead WHERE retry = 1 AND group_name = $1 AND (leased_until IS NULL OR leased_until < " + d.now + ") ORDER BY position LIMIT $2"
	err := one(ctx, s.engine.direct(), []any{new(int64)}, "SELECT 1"+wanted, group, 1) // nearly always there is nothing to do
	if errors.Is(err, errNoRow) {
		return nil, nil
	}
	var letters []Letter
	if err == nil {
		err = s.engine.within(ctx, writing, func(db conn) error {
			letters = nil
			if err := db.query(ctx, func(r row) error {
				l, err := scanLetter(r)
				letters = append(letters, l)
				return err
			}, "SELECT "+letterColumns+wanted+d.skip, group, limit); err != nil {
				return err
			}
			for _, l := range letters {
				if _, err := db.exec(ctx, "UPDATE event_dead SET leased_until = "+d.ago("$3")+" WHERE group_name = $1 AND event_id = $2", l.Group, l.EventID, -lease.Milliseconds()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("order: retries of group %s: %w", group, err)
	}
	return letters, nil
}
