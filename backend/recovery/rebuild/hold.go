package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// Hold holds a shard on one server for a rebuild or a move: its queue stops, nothing can be bought from its sales, and
// guards reject new connections. Its scripts have a fence; if a later rebuild or move has begun, they change nothing,
// and the methods return guard.ErrFenced. Each call may be repeated. If a process ends before Finish, a backend
// rebuilds the shard.
type Hold struct {
	client redisconn.Client // connects to one server
	shard  keyspace.Shard
	owner  guard.Owner
	fence  int64
}

// NewHold returns the hold of a shard for its owner with a new fence (NextFence). The client connects to one server.
func NewHold(client redisconn.Client, shard keyspace.Shard, owner guard.Owner, fence int64) Hold {
	return Hold{client, shard, owner, fence}
}

// errTakenOver reports that Begin has succeeded, and that processes of the former owner of the data may not have
// noticed the takeover yet.
var errTakenOver = errors.New("the data was taken over from another deployment")

// Begin holds the shard, which makes its data that of the owner. No sale is added to the shard or removed from it any
// longer. If verified is not empty, the data must have been verified on the server with this id (guard.SameData);
// otherwise Begin returns guard.ErrUnverified. The data of another deployment is taken over if from is its id;
// otherwise Begin returns a *guard.DeploymentError.
func (h Hold) Begin(ctx context.Context, verified, from string) error {
	if verified != "" {
		recorded, err := h.client.HGet(ctx, h.shard.Guard(), "run_id").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return sale.Unavailable(err)
		}
		if guard.SameData(recorded, verified) { // false in a repeated call, which the script accepts without a run_id
			verified = recorded // the script compares the text
		}
	}
	keys := []string{h.shard.Guard(), h.shard.RebuildReady(), h.shard.Consumers(), h.shard.Sales()}
	err := h.call(ctx, "begin", keys, verified, from)
	if errors.Is(err, guard.ErrForeign) { // with both ids, if they are known
		err = cmp.Or(guard.CheckOwner(ctx, h.client, h.shard, h.owner), err)
	}
	return err
}

// CheckFence returns guard.ErrFenced if the shard is not held with the fence any longer.
func (h Hold) CheckFence(ctx context.Context) error { return h.Suspend(ctx, nil) }

// Suspend suspends sales of the shard: nothing can be bought from them.
func (h Hold) Suspend(ctx context.Context, ids []string) error {
	keys := []string{h.shard.Guard()}
	for _, id := range ids {
		keys = append(keys, h.shard.Sale(id))
	}
	return h.call(ctx, "suspend_sales", keys)
}

// Resume lets sales be bought again, as far as their switch and their window permit. A sale without a version gets the
// version and the switch that it had before Suspend.
func (h Hold) Resume(ctx context.Context, sales []sale.Sale) error {
	keys, args := []string{h.shard.Guard()}, make([]any, 0, 2*len(sales))
	for _, s := range sales {
		keys = append(keys, h.shard.Sale(s.ID))
		if s.Version == 0 {
			args = append(args, "", "")
		} else {
			args = append(args, s.Version, string(s.Switch))
		}
	}
	return h.call(ctx, "resume_sales", keys, args...)
}

// SkipOrderNumbers prevents order numbers from being allocated twice: backends may have leased blocks of numbers that
// are not recorded on this server.
func (h Hold) SkipOrderNumbers(ctx context.Context) error {
	space := keyspace.Space{Shards: h.owner.Shards}
	return admission.NewSequencer(h.client, space, nil).StartGeneration(ctx, h.shard, h.fence)
}

// Finish ends the hold: the data is verified on the server with this run_id.
func (h Hold) Finish(ctx context.Context, runID string) error {
	return h.call(ctx, "finish", []string{h.shard.Guard()}, runID, h.owner.Shards)
}

// call runs a script of the hold.
func (h Hold) call(ctx context.Context, script string, keys []string, args ...any) error {
	result, err := redisscript.Run(ctx, h.client, "rebuild_"+script, keys, append([]any{h.mark()}, args...)...).Text()
	if result == "taken_over" {
		return errTakenOver
	}
	return guard.ScriptError("rebuild_"+script, result, err)
}

// mark identifies the hold to the scripts.
func (h Hold) mark() string { return mark(h.fence, h.owner.Deployment) }

// mark returns the fence and the deployment of a rebuild, which scripts compare with the guard of a shard. The fence
// alone does not identify it, because each deployment numbers its rebuilds independently.
func mark(fence, deployment int64) string { return fmt.Sprintf("%d %d", fence, deployment) }
