package events

import (
	"context"
	"strings"

	"sluice/backend/store"
	"sluice/internal/plural"
)

// Group is a group of consumers. It receives every event.
type Group struct {
	Name  string
	Start int64 // last position before the group's first event
}

const selectGroups = "SELECT name, start_position FROM event_groups"

func scanGroup(row store.Scanner) (g Group, err error) {
	err = row.Scan(&g.Name, &g.Start)
	return g, err
}

// AddGroup registers a group and returns it. The group receives all events that are still stored or, with fromNow, the
// events that get a position from now on. A registered group is left unchanged. No change that is stored when AddGroup
// returns, or made later, is dropped.
func (s *Store) AddGroup(ctx context.Context, name string, fromNow bool) (Group, error) {
	op := "events: add group " + name
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (Group, error) {
		// The lock excludes DropChanges, which checks that there is no group.
		start, err := lockPosition(ctx, c)
		if !fromNow {
			start = 0
		}
		if err == nil {
			_, err = c.Exec(ctx, "INSERT INTO event_groups (name, start_position) VALUES ($1, $2) "+
				"ON CONFLICT (name) DO NOTHING", name, start)
		}
		if err != nil {
			return Group{}, err
		}
		return store.GetRow(ctx, c, scanGroup, selectGroups+" WHERE name = $1", name)
	})
}

// Group returns a group, or sale.ErrNotFound.
func (s *Store) Group(ctx context.Context, name string) (Group, error) {
	return store.ViewRow(ctx, s.db, "events: group "+name, scanGroup, selectGroups+" WHERE name = $1", name)
}

// Groups returns all groups, by name.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	return store.ViewRows(ctx, s.db, "events: groups", scanGroup, selectGroups+" ORDER BY name")
}

// RemoveGroup deletes a group and its dead letters, and logs it with the actor and the reason of the context, also if
// the group is only in Redis. More than deleteBatch dead letters are deleted in several transactions, each of which is
// logged: after an error, some may be deleted, and a repeated call deletes the rest. A group that an earlier call
// removed is a success. Error: sale.ErrNotFound.
func (s *Store) RemoveGroup(ctx context.Context, name string, inRedis bool) error {
	name = strings.ToValidUTF8(name, "\uFFFD") // a group that is only in Redis may have any name
	for letters := int64(0); ; {
		n, err := s.removePart(ctx, name, inRedis, letters)
		if err != nil || n < deleteBatch {
			return err
		}
		letters += n
	}
}

// removePart deletes up to deleteBatch dead letters of a group and returns their number. If no more are left, it
// deletes the group. letters is the number of dead letters that were deleted before.
func (s *Store) removePart(ctx context.Context, name string, inRedis bool, letters int64) (int64, error) {
	op := "events: remove group " + name
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (int64, error) {
		registered, err := lockGroup(ctx, c, name)
		if err != nil {
			return 0, err
		}
		n, err := c.Exec(ctx, `DELETE FROM event_dead_letters WHERE group_name = $1 AND event_id IN (
			SELECT event_id FROM event_dead_letters WHERE group_name = $1 LIMIT $2)`, name, deleteBatch)
		if err != nil {
			return 0, err
		}
		letters := letters + n
		if n == deleteBatch {
			return n, store.AppendLog(ctx, c, removedGroup, name, "so far "+plural.Count(letters, "dead letter"))
		}
		if _, err := c.Exec(ctx, "DELETE FROM event_groups WHERE name = $1", name); err != nil {
			return 0, err
		}
		if registered || letters > 0 || inRedis {
			return n, store.AppendLog(ctx, c, removedGroup, name, "with "+plural.Count(letters, "dead letter"))
		}
		return n, store.RequireLogged(ctx, c, removedGroup, name)
	})
}
