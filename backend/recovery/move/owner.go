package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
)

// changeOwner makes the target the owner of the slot. Before that, it sets MIGRATING on the source. There, a script
// then fails if one of its keys does not exist, which prevents a rebuild. So the source and the target never sell at
// the same time.
func (j *job) changeOwner(ctx context.Context) error {
	j.cfg.Progress("mark", 0, 0)
	moveSlot := func(c redisconn.Client, to string) error {
		return j.call(ctx, c, "move_slot", []string{j.shard.Guard()}, j.slot, to, j.target.id, j.owner.Deployment)
	}
	j.changing = true
	if err := moveSlot(j.source.pinned, "MIGRATING"); err != nil {
		if _, rejected := errors.AsType[redis.Error](err); rejected || errors.Is(err, guard.ErrFenced) {
			j.changing = false
			return j.abandon(ctx, err)
		}
		return j.unfinished(err)
	}
	j.cfg.Progress("flip", 0, 0)
	if err := moveSlot(j.target.importing, "NODE"); err != nil {
		return j.unfinished(err)
	}
	return nil
}

// unfinished is an error after which the owner of the slot may have changed.
func (j *job) unfinished(err error) error {
	return fmt.Errorf("the move may be incomplete; to finish it, run again: sluice shard move %d --to %s: %w",
		j.shard, j.target.addr, err)
}

// settle waits until the source has received the new owner and deleted its copy. The shard is held there, so until
// then it sells nothing.
func (j *job) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		err := j.setSlot(ctx, j.source.pinned, "NODE", j.target.id) // fails while the source has keys of the slot
		if err == nil {
			return
		}
		if loop.Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			j.cfg.Log.Warn("the old master has not released the slot: redis-cli --cluster check shows its state",
				"master", j.source.addr, "slot", j.slot, "err", err)
			return
		}
	}
}
