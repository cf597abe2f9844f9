package main

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
)

// reconcileEvery is the interval at which each backend brings Redis up to date with SQL. It bounds how long a change
// stays unapplied after a crash between SQL and Redis.
const reconcileEvery = 2 * time.Second

// keysEvery is how often a file of token keys is looked at, as the gateway looks at its policy.
const keysEvery = time.Second

// returnEvery is how often each backend looks for orders that were not paid in time. It bounds how late their units
// are sold again.
const returnEvery = time.Second

// followKeys takes over a file of token keys that has changed. A bad one is logged once, and the old keys stay.
func (b *backend) followKeys(ctx context.Context) error {
	t := time.NewTicker(keysEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		switch changed, err := b.keys.Reload(); {
		case err != nil:
			b.log.Error("the token keys are invalid, the previous keys stay in use", "err", err)
		case changed:
			b.log.Info("the token keys have changed", "keys", b.keys.Set().Names())
		}
	}
}

// verify makes sure that Redis may be trusted, before anything else is done with it.
func (b *backend) verify(ctx context.Context) error {
	if err := b.stores.guard.Check(ctx, b.stores.sql.Generations); err != nil {
		return err
	}
	if _, ok := b.stores.guard.Verified(); ok {
		return nil
	}
	if b.journal != nil { // the rebuild waits for its journal
		keeping, stop := context.WithCancel(ctx)
		var kept errgroup.Group
		kept.Go(func() error { return b.journal.Run(keeping) })
		defer func() { stop(); _ = kept.Wait() }()
	}
	for {
		err := b.rebuilder.Run(ctx)
		if err != nil && !errors.Is(err, rebuild.ErrBusy) {
			return err
		}
		if err := b.stores.guard.Check(ctx, b.stores.sql.Generations); err != nil {
			return err
		}
		if _, ok := b.stores.guard.Verified(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(guard.Heartbeat):
		}
	}
}

// run serves until ctx ends and open requests are answered.
func (b *backend) run(ctx context.Context, public, admin net.Listener) error {
	defer func() {
		for _, c := range b.closers {
			c()
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.public.Serve(ctx, public) })
	g.Go(func() error { return b.admin.Serve(ctx, admin) })
	g.Go(func() error { return b.stores.guardBackend(ctx, b.log, b.rebuilder) })
	if b.journal != nil {
		g.Go(func() error { return b.journal.Run(ctx) })
	}
	g.Go(func() error { return b.auditor.Run(ctx) })
	g.Go(func() error { return b.relay.Run(ctx) })
	g.Go(func() error { return b.live.Run(ctx) })
	g.Go(func() error { return b.receiver.Run(ctx) })
	g.Go(func() error { return b.measure(ctx) })
	g.Go(func() error { return b.liveStats.Run(ctx) })
	g.Go(func() error { return b.service.Run(ctx, reconcileEvery) })
	g.Go(func() error { return b.followKeys(ctx) })
	g.Go(func() error { return b.expirer.Run(ctx, returnEvery) })
	return g.Wait()
}
