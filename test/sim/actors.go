package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/admin"
	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/spread"
	"sluice/backend/worker"
)

// backend is one API server: it admits purchases and keeps Redis up to date with SQL.
// Its admitter is nil while it cannot be reached.
type backend struct {
	name  string
	admit atomic.Pointer[admission.Admitter]
}

func (w *world) stock(p *process) *admission.Stock {
	cfg := admission.StockConfig{
		Client: p.client, Space: w.space, Claimer: faultyStore{w.store, p},
	}
	if p.guards != nil {
		cfg.Deployment = p.guards.Deployment
		cfg.Server = func(shard keyspace.Shard) redisconn.Client { return p.guards.Of(shard).Client() }
	}
	return admission.NewStock(cfg)
}

func (w *world) adminConfig(p *process) admin.Config {
	var shards []admin.Shard
	for _, shard := range w.space.All() {
		shards = append(shards, w.queue(p.client, shard, w.queueConfig(p)))
	}
	return admin.Config{Store: faultyStore{w.store, p}, Stock: w.stock(p), Shards: shards, Log: w.log}
}

func (w *world) runBackend(b *backend) func(*process) {
	return func(p *process) {
		b.admit.Store(nil)
		var keepers rebuild.JournalWriters
		if w.Guarded {
			var closeAll func()
			var err error
			if keepers, closeAll, err = w.keepers(p, b.name); err != nil {
				w.violate("%s has no journal: %v", b.name, err)
				return
			}
			defer func() { p.loops.Wait(); closeAll() }()
			rebuilder := w.rebuilder(p, keepers)
			w.watchRedis(p, func(ctx context.Context, shard keyspace.Shard) {
				_ = rebuilder.RunIf(ctx, shard, func(context.Context) bool { return true }) // an error is retried in the next turn
			})
		}
		ids := admission.NewSequencer(p.client, w.space, time.Now)
		// The first block of numbers is leased before the first purchase, because the order among waiting purchases is
		// random.
		for _, shard := range w.space.All() {
			for p.alive() {
				if _, err := ids.Next(p.ctx, shard); err == nil {
					break
				}
				p.sleep(p.ctx, 100*time.Millisecond)
			}
		}
		cfg := admission.Config{Client: p.client, Space: w.space, IDs: ids, MaxReady: w.MaxReady, Stream: w.stream}
		if w.Guarded {
			cfg.Recorder = keepers
			for _, keeper := range keepers {
				p.every(700*time.Millisecond, func() { keeper.RunOnce(p.ctx) })
				p.every(500*time.Millisecond, func() { _ = keeper.Heartbeat(p.ctx) }) // an error is retried in the next turn
			}
		}
		mover := spread.NewMover(admission.NewSegments(p.client, w.space, nil), faultyStore{w.store, p})
		refillers := spread.NewRefillers(mover)
		cfg.Refillers = refillers
		admit, err := admission.NewAdmitter(cfg)
		if err != nil { // the configuration is valid
			panic(err)
		}
		b.admit.Store(admit)
		d, expirer := admin.New(w.adminConfig(p)), admin.NewHoldExpirer(w.adminConfig(p))
		p.every(400*time.Millisecond, func() {
			for _, of := range d.SpreadSales(time.Now()) {
				_ = refillers.Of(of).RunOnce(p.ctx)
			}
		})
		for p.alive() {
			_ = d.RunOnce(p.ctx) // an error is retried in the next turn
			p.sleep(p.ctx, 500*time.Millisecond)
			_ = expirer.RunOnce(p.ctx)
			p.sleep(p.ctx, 500*time.Millisecond)
		}
	}
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// runWorker runs a loop for each shard until it is stopped.
func (w *world) runWorker(p *process) {
	w.watchRedis(p, nil)
	working, stop := context.WithCancel(p.ctx)
	w.mu.Lock()
	p.stop = stop
	w.mu.Unlock()
	var shards sync.WaitGroup
	for _, shard := range w.space.All() {
		rnd := p.fork()
		cfg := worker.Config{
			Concurrency: 1, Batch: w.Batch, Idle: 300 * time.Millisecond, WriteTimeout: 2 * time.Second, MaxBackoff: time.Second,
			DrainTimeout: time.Second, Jitter: rnd.Float64, ConsumerName: p.consumerNames(shard), Log: w.log,
		}
		if w.Guarded {
			cfg.Source, cfg.Shard = w.restorer(p, shard), int(shard)
		}
		work := worker.New(w.queue(p.client, shard, w.queueConfig(p)), faultyStore{w.store, p}, cfg)
		shards.Go(func() { _ = work.Run(working) }) // always nil
	}
	shards.Wait()
	p.cancel()
}

func (w *world) runWatcher(p *process) {
	w.watchRedis(p, nil)
	var watchers []*queue.Watcher
	for _, shard := range w.space.All() {
		watchers = append(watchers, &queue.Watcher{Queue: w.queue(p.client, shard, w.queueConfig(p)), Log: w.log})
	}
	for p.alive() {
		for _, watch := range watchers {
			_, _ = watch.RunOnce(p.ctx) // an error is retried in the next turn
		}
		p.sleep(p.ctx, 500*time.Millisecond)
	}
}

// runAuditor audits repeatedly: every audit of a verified Redis must balance.
func (w *world) runAuditor(p *process) {
	w.watchRedis(p, nil)
	l := audit.New(w.stock(p), faultyStore{w.store, p})
	for p.alive() {
		p.sleep(p.ctx, 2*time.Second+p.within(2*time.Second))
		s := w.Shops[p.rnd.IntN(len(w.Shops))]
		sound := w.auditable(s) // read before: a sale may be loaded during the audit
		report, err := l.Audit(p.ctx, s.ID)
		if err != nil || sound == "" || sound != w.auditable(s) {
			continue
		}
		w.checkAudit(report)
	}
}

// auditable returns the name of the Redis if it can be audited; "" if it lacks the sale or is not verified.
func (w *world) auditable(s shop) string {
	name := w.server()
	for _, part := range s.parts() {
		shard := w.space.ShardOfSegment(s.ID, part.Segment)
		if !w.verified() || !w.mini.Exists(shard.Stock(s.ID)) {
			return ""
		}
		name += w.hash(shard.Guard())["fence"] + "."
	}
	return name
}

func (w *world) cast() {
	backends := []*backend{{name: "backend1"}, {name: "backend2"}}
	add := func(name string, once bool, main func(*process)) {
		w.roles = append(w.roles, &role{name: name, main: main, once: once})
	}
	add("admin", false, w.runAdmin)
	add("provider", false, w.runProvider)
	for _, b := range backends {
		add(b.name, false, w.runBackend(b))
	}
	for i := range w.Workers {
		add(fmt.Sprintf("worker%d", i+1), false, w.runWorker)
	}
	add("watcher", false, w.runWatcher)
	add("auditor", false, w.runAuditor)
	for i := range w.Buyers {
		name := fmt.Sprintf("buyer%d", i+1)
		add(name, true, w.runBuyer(name, backends))
		if w.rnd.IntN(4) == 0 {
			kind := []string{"refused", "failing", "deadly"}[w.rnd.IntN(3)]
			if w.Gentle {
				kind = "refused"
			}
			w.troubles[name] = &troublemaker{kind, 1 + w.rnd.IntN(12)}
		}
	}
}
