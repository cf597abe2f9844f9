package assemble

import (
	"context"

	"sluice/backend/recovery/move"
	"sluice/backend/redis/keyspace"
)

// MoveShard moves a shard of a Redis Cluster to the master at an address. progress is called when a step begins, and
// during the copy with the number of keys. See move.Mover.
func (s *Stores) MoveShard(
	ctx context.Context, shard int, to string, progress func(step string, done, total int),
) (move.Result, error) {
	m, err := move.New(move.Config{
		Server: s.guards.Server(), Space: s.space, Progress: progress, Log: s.log, Store: s.recovery,
	})
	if err != nil {
		return move.Result{}, err
	}
	return m.Move(ctx, keyspace.Shard(shard), to)
}
