package store

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Group is a group of consumers that is told every change.
type Group struct {
	Name    string
	Start   int64 // the last position that it does not want
	Created time.Time
}

// AddGroup makes a group known, and returns it. It wants all changes that are still kept (fromNow false), or only those that are given a position from
// now on. A group that is known already stays as it is.
func (s *Store) AddGroup(ctx context.Context, name string, fromNow bool) (g Group, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		start := "0"
		if fromNow {
			start = "(SELECT n FROM counters WHERE name = 'event')"
		}
		if _, err := db.exec(ctx, "INSERT INTO event_groups (name, start) VALUES ($1, "+start+") ON CONFLICT (name) DO NOTHING", name); err != nil {
			return err
		}
		found, err := groups(ctx, db, " WHERE name = $1", name)
		if err == nil {
			g = found[0]
		}
		return err
	})
	if err != nil {
		return Group{}, fmt.Errorf("order: add group %s: %w", name, err)
	}
	return g, nil
}

// Group returns one group, or sale.ErrNotFound.
func (s *Store) Group(ctx context.Context, name string) (Group, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	found, err := groups(ctx, s.engine.direct(), " WHERE name = $1", name)
	if err == nil && len(found) == 0 {
		err = sale.ErrNotFound
	}
	if err != nil {
		return Group{}, fmt.Errorf("order: group %s: %w", name, err)
	}
	return found[0], nil
}

// Groups returns every group, by name.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	found, err := groups(ctx, s.engine.direct(), "")
	if err != nil {
		return nil, fmt.Errorf("order: groups: %w", err)
	}
	return found, nil
}

// RemoveGroup forgets a group and its dead letters, and writes it in the desk log with the actor of the context. Error: sale.ErrNotFound.
func (s *Store) RemoveGroup(ctx context.Context, name string) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		n, err := db.exec(ctx, "DELETE FROM event_groups WHERE name = $1", name)
		if err != nil {
			return err
		}
		letters, err := db.exec(ctx, "DELETE FROM event_dead WHERE group_name = $1", name)
		if err != nil {
			return err
		}
		if n+letters == 0 {
			return sale.ErrNotFound
		}
		return record(ctx, db, actorOf(ctx), "group.remove", name, fmt.Sprintf("with %d dead letters", letters)+because(ctx))
	})
	if err != nil {
		return fmt.Errorf("order: remove group %s: %w", name, err)
	}
	return nil
}

func groups(ctx context.Context, db conn, where string, args ...any) (found []Group, err error) {
	err = db.query(ctx, func(r row) error {
		var g Group
		var at instant
		err := r.Scan(&g.Name, &g.Start, &at)
		g.Created = at.Time
		found = append(found, g)
		return err
	}, "SELECT name, start, created_at FROM event_groups"+where+" ORDER BY name", args...)
	return found, err
}
