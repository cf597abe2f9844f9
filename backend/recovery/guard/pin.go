package guard

import (
	"context"
	"slices"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// Pin opens a client that connects to the current server only, and returns the server's id. A rebuild uses it, because
// its writes to one server must not continue on another. The caller closes the client. An error wraps
// sale.ErrUnavailable.
func (g *Guard) Pin(ctx context.Context) (client redisconn.Client, runID string, err error) {
	if runID, err = g.identify(ctx, g.raw); err != nil {
		return nil, "", sale.Unavailable(err)
	}
	return openPinned(g.server, g.identify, runID, g.options), runID, nil
}

// PinServer is Guard.Pin for any server, for example one that a shard moves to.
func PinServer(ctx context.Context, server *redisconn.Server, options ...redisconn.Option) (
	client redisconn.Client, runID string, err error,
) {
	first := server.Open(options...)
	defer first.Close()
	if runID, err = RunID(ctx, first); err != nil {
		return nil, "", sale.Unavailable(err)
	}
	return openPinned(server, RunID, runID, options), runID, nil
}

func openPinned(
	server *redisconn.Server, identify Identify, runID string, options []redisconn.Option,
) redisconn.Client {
	sameServer := redisconn.OnConnect(func(ctx context.Context, cn redisconn.Connection) error {
		id, err := identify(ctx, cn)
		if err == nil && !SameData(runID, id) {
			err = ErrUnverified
		}
		return err
	})
	return server.Open(append(slices.Clip(options), redisconn.LongTimeouts, sameServer)...)
}
