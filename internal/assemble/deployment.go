package assemble

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"sluice/backend/recovery/guard"
	"sluice/backend/sale"
)

// checkDeployment returns a UsageError if Redis holds the data of another deployment than the database, or another
// number of shards. A shard that does not respond is not compared.
func (s *Stores) checkDeployment(ctx context.Context, deployment int64) error {
	owner := guard.Owner{Deployment: deployment, Shards: len(s.space.All())}
	var shards errgroup.Group
	for _, shard := range s.space.All() {
		shards.Go(func() error {
			err := guard.CheckOwner(ctx, s.guards.Of(shard).Raw(), shard, owner)
			if errors.Is(err, sale.ErrUnavailable) {
				return nil
			}
			return err
		})
	}
	if err := shards.Wait(); err != nil {
		return usage("%w", err)
	}
	return nil
}
