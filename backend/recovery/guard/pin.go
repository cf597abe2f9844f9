package guard

import (
	"context"
	"slices"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// Pin opens a client that connects to the current server of the shard only, and returns the server's id. A rebuild uses
// it, because its writes to one server must not continue on another. The caller closes the client. An error wraps
// sale.ErrUnavailable.
func (g *Guard) Pin(ctx context.Context) (client redisconn.Client, runID string, err error) {
	return pin(ctx, g.raw, g.server, g.identify, g.options)
}

// PinServer is Guard.Pin for any server, for example one that a shard moves to.
func PinServer(ctx context.Context, server *redisconn.Server, options ...redisconn.Option) (
	client redisconn.Client, runID string, err error,
) {
	first := server.Open(options...)
	defer first.Close()
	return pin(ctx, first, server, RunID, options)
}

func pin(
	ctx context.Context, first redisconn.Client, server *redisconn.Server, identify Identify,
	options []redisconn.Option,
) (client redisconn.Client, runID string, err error) {
	if runID, err = identify(ctx, first); err != nil {
		return nil, "", sale.Unavailable(err)
	}
	sameServer := redisconn.OnConnect(func(ctx context.Context, cn redisconn.Connection) error {
		id, err := identify(ctx, cn)
		if err == nil && !SameData(runID, id) {
			err = ErrUnverified
		}
		return err
	})
	return server.Open(append(slices.Clip(options), redisconn.LongTimeouts, sameServer)...), runID, nil
}
