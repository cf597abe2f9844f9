package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
)

// open gives a process its connection to Redis, guarded if the plan has guards.
func (w *world) open(p *process) {
	if !w.Guarded {
		p.client = redis.NewClient(options(w.mini, &w.servers))
		p.client.AddHook(faultyRedis{p})
		return
	}
	g, err := guard.Open("redis://sim", w.space, identify, w.log, func(o *redis.Options) {
		*o = *options(w.mini, &w.servers)
	})
	if err != nil { // the URL is a good one
		panic(err)
	}
	g.Client().AddHook(faultyRedis{p})
	g.Raw().AddHook(faultyRedis{p})
	p.guard, p.client = g, g.Client()
}

func (p *process) close() {
	if p.guard != nil {
		_ = p.guard.Close()
		return
	}
	_ = p.client.Close()
}

// watchRedis is what guard.Run does, less often.
func (w *world) watchRedis(p *process, unverified func(context.Context)) {
	if p.guard == nil {
		return
	}
	p.every(800*time.Millisecond, func() {
		_ = p.guard.Check(p.ctx, faultyStore{w.store, p}) // what fails is for the next turn
		if _, ok := p.guard.Verified(); !ok && unverified != nil {
			unverified(p.ctx)
			_ = p.guard.Check(p.ctx, faultyStore{w.store, p})
		}
	})
}

func (w *world) rebuilder(p *process) *rebuild.Rebuilder {
	r, err := rebuild.New(rebuild.Config{
		Pinner: pinner{p}, Store: faultyStore{w.store, p}, Space: w.space, Log: w.log, JournalWait: 2 * time.Second,
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

// pinner puts the faults in front of a pinned client.
type pinner struct{ p *process }

func (s pinner) Pin(ctx context.Context) (*redis.Client, string, error) {
	client, id, err := s.p.guard.Pin(ctx)
	if err == nil {
		client.AddHook(faultyRedis(s))
	}
	return client, id, err
}

func (w *world) restorer(p *process) *rebuild.Restorer {
	return rebuild.NewRestorer(p.guard, p.guard.Raw(), w.space, faultyStore{w.store, p})
}

// keeper opens a backend's journal, which outlives its process, and keeps it until the process ends.
func (w *world) keeper(p *process, name string) (k *rebuild.JournalWriter, closeIt func(), err error) {
	dir := filepath.Join(w.folder, name)
	// The journal's own name is random, and a run must repeat.
	if err := errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "id"), []byte(name+"\n"), 0o600),
	); err != nil {
		return nil, nil, err
	}
	j, err := journal.Open(dir, journal.Config{Log: w.log})
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	w.journals[name] = j
	w.mu.Unlock()
	k = rebuild.NewJournalWriter(rebuild.JournalWriterConfig{
		Journal: j, Restorer: w.restorer(p), Store: faultyStore{w.store, p}, Log: w.log,
	})
	return k, func() { _ = j.Close() }, nil
}

// adopted reports whether every journal was restored to the current Redis. Until then it may lack accepted orders.
func (w *world) adopted() bool {
	if !w.Guarded {
		return true
	}
	fence := w.hash(w.space.All()[0].Guard())["fence"]
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.journals {
		if number(fence) != j.Restored() {
			return false
		}
	}
	return true
}
