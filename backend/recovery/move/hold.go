package move

import (
	"context"
	"fmt"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// beginGeneration begins a new generation in SQL, before the shard is held. No later step needs SQL. After an error SQL
// may have the new generation; then the data of the shard is older, and a backend rebuilds it.
func (j *job) beginGeneration(ctx context.Context) error {
	j.cfg.Progress("hold", 0, 0)
	if err := j.cfg.Store.BeginGeneration(ctx, int(j.shard), j.fence); err != nil {
		return fmt.Errorf("the shard is not held, because the database has not confirmed a new generation: %w", err)
	}
	return nil
}

// hold stops the shard on the source. After an error the shard may be held.
func (j *job) hold(ctx context.Context) error {
	h := rebuild.NewHold(j.source.pinned, j.shard, j.owner, j.fence)
	if err := h.Begin(ctx, j.source.runID, ""); err != nil {
		return err
	}
	j.held = true
	var err error
	if j.sales, err = j.source.pinned.SMembers(ctx, j.shard.Sales()).Result(); err != nil {
		return sale.Unavailable(err)
	}
	return h.Suspend(ctx, j.sales)
}

// release marks the data of a server as verified and resumes its sales.
func (j *job) release(ctx context.Context, c redisconn.Client, runID string) error {
	h := rebuild.NewHold(c, j.shard, j.owner, j.fence)
	if err := h.CheckFence(ctx); err != nil {
		return err
	}
	if err := h.SkipOrderNumbers(ctx); err != nil {
		return err
	}
	sales := make([]sale.Sale, len(j.sales))
	for i, id := range j.sales {
		sales[i].ID = id
	}
	if err := h.Resume(ctx, sales); err != nil {
		return err
	}
	return h.Finish(ctx, runID)
}

// abandon releases the shard on the source, where nothing has changed since the hold, and returns the error of the
// move. If that fails, for example because the shard is not held, a backend rebuilds the shard.
func (j *job) abandon(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	if failed := j.release(ctx, j.source.pinned, j.source.runID); failed != nil {
		j.kept = failed
		return fmt.Errorf("%w; a backend rebuilds the shard on %s (%w)", err, j.source.addr, failed)
	}
	return fmt.Errorf("%w; the shard continues on %s", err, j.source.addr)
}

// withdraw deletes the copy on the target and ends the import of the slot, unless another move to it has begun. The
// next move deletes keys that withdraw could not delete.
func (j *job) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	if j.held {
		if err := j.clear(ctx, "abandon"); err != nil {
			return
		}
		if err := j.clearCall(ctx, "withdraw"); err != nil {
			return
		}
	}
	lock := []string{j.shard.RebuildLock()}
	_ = redisscript.Run(ctx, j.target.importing, "move_withdraw", lock, j.slot, j.source.id).Err()
}
