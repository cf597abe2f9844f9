package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// open gives a process its connection to Redis, guarded if the plan has guards.
func (w *world) open(p *process) {
	if !w.Guarded {
		p.client = redis.NewClient(options(w.mini, &w.servers))
		p.client.AddHook(faultyRedis{p: p})
		return
	}
	server, err := redisconn.NewServer("redis://sim?protocol=2&pool_size=64")
	if err != nil { // the URL is a good one
		panic(err)
	}
	p.guards = guard.Open(guard.Config{
		Server: server, Space: w.space, Identify: identify, Log: w.log,
		Options: []redisconn.Option{redisconn.Dial(dialer(w.mini, &w.servers)), redisconn.Once},
	})
	for _, shard := range w.space.All() {
		p.guards.Of(shard).Client().AddHook(faultyRedis{p, fmt.Sprint("guarded ", shard)})
		p.guards.Of(shard).Raw().AddHook(faultyRedis{p, fmt.Sprint("raw ", shard)})
	}
	p.client = p.guards.Client()
}

func (p *process) close() {
	if p.guards != nil {
		_ = p.guards.Close()
		return
	}
	_ = p.client.Close()
}

// watchRedis does the work of guard.Run in each shard, less often.
func (w *world) watchRedis(p *process, unverified func(context.Context, keyspace.Shard)) {
	if p.guards == nil {
		return
	}
	for _, shard := range w.space.All() {
		g := p.guards.Of(shard)
		p.every(800*time.Millisecond, func() {
			_ = g.Check(p.ctx, faultyStore{w.store, p}) // an error is retried in the next turn
			if _, ok := g.Verified(); !ok && unverified != nil {
				unverified(p.ctx, shard)
				_ = g.Check(p.ctx, faultyStore{w.store, p})
			}
		})
	}
}

func (w *world) rebuilder(p *process, journals rebuild.JournalWriters) *rebuild.Rebuilder {
	r, err := rebuild.New(rebuild.Config{
		Pinner: pinner{p}, Store: faultyStore{w.store, p}, Space: w.space, Log: w.log, JournalWait: 2 * time.Second,
		Journals: journals,
		Pause: func(_ context.Context, saleID, reason string) error {
			w.violate("after a rebuild sale %s does not balance: %s", saleID, reason)
			return nil
		},
	})
	if err != nil { // the configuration is valid
		panic(err)
	}
	return r
}

// pinner adds the faults to a pinned client.
type pinner struct{ p *process }

func (s pinner) Pin(ctx context.Context, shard keyspace.Shard) (redisconn.Client, string, error) {
	client, id, err := s.p.guards.Pin(ctx, shard)
	if err == nil {
		client.AddHook(faultyRedis{s.p, fmt.Sprint("pinned ", shard)})
	}
	return client, id, err
}

func (s pinner) Raw() redisconn.Client { return s.p.guards.Raw() }

func (w *world) restorer(p *process, shard keyspace.Shard) *rebuild.Restorer {
	g := p.guards.Of(shard)
	return rebuild.NewRestorer(g, g.Raw(), shard, faultyStore{w.store, p})
}

// keepers opens the journals of a backend, which outlive its process.
func (w *world) keepers(p *process, name string) (all rebuild.JournalWriters, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, closeIt := range closers {
			closeIt()
		}
	}
	for _, shard := range w.space.All() {
		k, closeIt, err := w.keeper(p, fmt.Sprintf("%s-%d", name, shard), shard)
		if err != nil {
			return nil, closeAll, err
		}
		all, closers = append(all, k), append(closers, closeIt)
	}
	return all, closeAll, nil
}

// keeper opens the journal of one shard.
func (w *world) keeper(
	p *process, name string, shard keyspace.Shard,
) (k *rebuild.JournalWriter, closeIt func(), err error) {
	dir := filepath.Join(w.folder, name)
	// The journal's own name is random, and a run must repeat.
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "id"), []byte(name+"\n"), 0o600)); err != nil {
		return nil, nil, err
	}
	j, err := journal.Open(dir, journal.Config{Log: w.log})
	if err != nil {
		return nil, nil, err
	}
	k = rebuild.NewJournalWriter(rebuild.JournalWriterConfig{
		Journal: j, Restorer: w.restorer(p, shard), Store: faultyStore{w.store, p}, Log: w.log,
	})
	w.mu.Lock()
	w.journals[name], w.journalShards[name] = k, shard
	w.mu.Unlock()
	return k, func() { _ = j.Close() }, nil
}

// adopted reports whether every journal was restored to the current Redis. Before that, Redis may lack accepted orders.
func (w *world) adopted() bool {
	if !w.Guarded {
		return true
	}
	fences := make([]int64, len(w.space.All()))
	for _, shard := range w.space.All() {
		fences[shard] = number(w.hash(shard.Guard())["fence"])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, k := range w.journals {
		if fences[w.journalShards[name]] != k.Restored() {
			return false
		}
	}
	return true
}
