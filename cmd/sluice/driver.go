package main

import (
	"context"

	"github.com/spf13/pflag"

	"sluice/backend/admin"
	"sluice/backend/queue"
	"sluice/backend/worker"
)

const envQueue = "SLUICE_QUEUE"

// Where accepted orders wait in Redis. Every process serves both; the flag selects where a backend puts new orders.
const (
	driverList   = "list"
	driverStream = "stream"
)

// orderQueue is what this program does with the queue of one shard (queue.List, queue.Stream).
type orderQueue interface {
	worker.Queue
	admin.Shard
	Reclaim(ctx context.Context, limit int) (leases int, err error)
	Stats(ctx context.Context) (queue.Stats, error)
}

func (p *program) driverFlag(f *pflag.FlagSet, to *string) {
	p.str(
		f,
		to,
		"queue",
		envQueue,
		driverList,
		`where new orders wait in Redis: "list", the faster one, or "stream"; what waits in the other is served too`,
	)
}

func (m *problems) checkDriver(name string) {
	if name != driverList && name != driverStream {
		m.add("--queue %q: want %s or %s", name, driverList, driverStream)
	}
}
