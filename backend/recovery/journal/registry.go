package journal

import (
	"context"
	"slices"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Registry lists the journals of all backends in SQL. It is safe for concurrent use.
type Registry struct{ db *store.DB }

// NewRegistry returns the Registry in db.
func NewRegistry(db *store.DB) *Registry { return &Registry{db} }

// Status is the state of one backend's journal.
type Status struct {
	ID         string
	Generation int64         // the latest generation of Redis in which the journal's orders have been restored
	Restoring  int64         // the generation in which they are being restored; 0: none. Generation is 0 then
	Silent     time.Duration // since its last heartbeat, by the database's clock
}

// Heartbeat records that the backend of a journal is alive, its shard, and the generation of Redis in which its orders
// have been restored; or the negative of the generation in which they are being restored.
func (r *Registry) Heartbeat(ctx context.Context, id string, shard int, generation int64) error {
	return r.db.Update(ctx, "journal: heartbeat", func(ctx context.Context, c store.Conn) error {
		now := c.Dialect().Now
		_, err := c.Exec(ctx, "INSERT INTO journals (id, shard, generation, seen_at) VALUES ($1, $2, $3, "+now+
			") ON CONFLICT (id) DO UPDATE SET seen_at = "+now+", shard = $2, generation = $3", id, shard, generation)
		return err
	})
}

// RemovedRehearsals returns the rehearsals among the sales that were removed. Another sale that SQL does not have
// is not returned: SQL may have been restored from a backup that is older than the sale.
func (r *Registry) RemovedRehearsals(ctx context.Context, saleIDs []string) ([]string, error) {
	ids := slices.DeleteFunc(slices.Clone(saleIDs), func(id string) bool { return !sale.IsRehearsal(id) })
	if len(ids) == 0 {
		return nil, nil
	}
	existing, err := store.ViewRows(ctx, r.db, "journal: rehearsals", store.Column[string],
		"SELECT id FROM sales WHERE id "+r.db.Dialect().In("$1"), ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(existing, id) }), nil
}

// Journals returns every journal of a shard that has ever sent a heartbeat, by id.
func (r *Registry) Journals(ctx context.Context, shard int) (all []Status, err error) {
	err = r.db.View(ctx, "journal: journals", func(ctx context.Context, c store.Conn) error {
		all, err = store.Select(ctx, c, func(row store.Scanner) (s Status, err error) {
			var seen, now store.Timestamp
			err = row.Scan(&s.ID, &s.Generation, &seen, &now)
			s.Silent = now.Sub(seen.Time)
			if s.Generation < 0 {
				s.Generation, s.Restoring = 0, -s.Generation
			}
			return s, err
		}, "SELECT id, generation, seen_at, "+c.Dialect().Now+" FROM journals WHERE shard = $1 ORDER BY id", shard)
		return err
	})
	return all, err
}
