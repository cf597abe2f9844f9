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
	Restoring  int64         // the generation in which they are being restored, while Generation is 0; 0 if they are not
	Silent     time.Duration // since its last heartbeat, by the database's clock
}

// Heartbeat records that the backend of a journal is alive, the shard of the journal, and the state of its orders.
// generation is the generation of Redis in which they have been restored, the negative of the generation in which they
// are being restored, or 0 if neither is the case.
func (r *Registry) Heartbeat(ctx context.Context, id string, shard int, generation int64) error {
	now := r.db.Dialect().Now
	_, err := store.UpdateRows(ctx, r.db, "journal: heartbeat", "INSERT INTO journals (id, shard, generation, seen_at)"+
		" VALUES ($1, $2, $3, "+now+") ON CONFLICT (id) DO UPDATE SET seen_at = "+now+", shard = $2, generation = $3",
		id, shard, generation)
	return err
}

// keep is how long a silent journal stays in the registry. It is longer than any shutdown of a deployment, after which
// all backends start together and a rebuild must wait for each of them.
const keep = 90 * 24 * time.Hour

// RemoveSilent removes the journals of a shard that have been silent for 90 days, such as those of containers without a
// volume. A backend that returns later registers its journal again.
func (r *Registry) RemoveSilent(ctx context.Context, shard int) error {
	_, err := store.UpdateRows(ctx, r.db, "journal: remove silent journals",
		"DELETE FROM journals WHERE shard = $1 AND seen_at < "+r.db.Dialect().Ago("$2"), shard, keep.Milliseconds())
	return err
}

// RemovedSales returns the sales among these that have no rows any more: archived sales, and rehearsals that SQL does
// not have. Another sale that SQL does not have is not returned: SQL may have been restored from a backup that is older
// than the sale.
func (r *Registry) RemovedSales(ctx context.Context, ids []string) (removed []string, err error) {
	read := func(query string, ids []string) (found []string, err error) {
		if len(ids) > 0 {
			found, err = store.ViewRows(ctx, r.db, "journal: removed sales", store.Column[string],
				query+r.db.Dialect().In("$1"), ids)
		}
		return found, err
	}
	if removed, err = read("SELECT sale_id FROM archives WHERE ended_at IS NOT NULL AND sale_id ", ids); err != nil {
		return nil, err
	}
	rehearsals := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !sale.IsRehearsal(id) })
	existing, err := read("SELECT id FROM sales WHERE id ", rehearsals)
	if err != nil {
		return nil, err
	}
	for _, id := range rehearsals {
		if !slices.Contains(existing, id) {
			removed = append(removed, id)
		}
	}
	return removed, nil
}

// Journals returns every journal of a shard that has sent a heartbeat and was not removed since, by id.
func (r *Registry) Journals(ctx context.Context, shard int) ([]Status, error) {
	return store.ViewRows(ctx, r.db, "journal: journals", func(row store.Scanner) (s Status, err error) {
		var seen, now time.Time
		err = row.Scan(&s.ID, &s.Generation, store.Time(&seen), store.Time(&now))
		s.Silent = now.Sub(seen)
		if s.Generation < 0 {
			s.Generation, s.Restoring = 0, -s.Generation
		}
		return s, err
	}, "SELECT id, generation, seen_at, "+r.db.Dialect().Now+" FROM journals WHERE shard = $1 ORDER BY id", shard)
}
