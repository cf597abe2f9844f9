package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// fate is the outcome of one call to a store.
type fate int

// The fates. Each but the first is counted as a fault.
const (
	fine      fate = iota
	before         // it fails, and has had no effect
	after          // its reply is lost
	twice          // it is executed twice: the client sent it again
	late           // it is executed after its caller gave up
	dieBefore      // the process crashes before it
	dieAfter       // the process crashes after it
	gone           // the process had stopped before
	fates
)

var fateNames = [fates]string{
	"",
	"fails before",
	"reply lost",
	"executed twice",
	"executed late",
	"process crashes before",
	"process crashes after",
	"gone",
}

var (
	errCut  = fmt.Errorf("the wire was cut: %w", sale.ErrUnavailable)
	errGone = errors.New("this process is dead")
)

// process is one run of one program. After a crash it has no effect: each of its calls fails, and its goroutines
// return.
type process struct {
	w      *world
	name   string
	ctx    context.Context
	cancel context.CancelFunc
	client redisconn.Client
	guards *guard.Shards // nil if the data in Redis needs no verification
	loops  sync.WaitGroup
	rnd    *rand.Rand
	frozen time.Time // until when it makes no call
	stop   func()    // starts a graceful shutdown; nil: there is none
	dead   bool
	ended  bool // its goroutine has returned
}

// call is a call for which a process waits to be scheduled.
type call struct {
	p    *process
	what string
	look bool // it has no effect, does not count as a step and has no faults
	fate chan fate
}

// do waits for its turn and makes a call with the fate that the seed selects. again executes the call after its caller
// has ended.
func (p *process) do(what string, run, again func() error) error {
	f := p.schedule(what, false)
	w := p.w
	switch f {
	case gone, dieBefore:
		return errGone
	case before:
		return errCut
	case late:
		w.delay(what, again)
		return errCut
	}
	w.mini.SetTime(time.Now())
	err := run()
	if f == twice && err == nil {
		err = run()
	}
	w.dirty.Store(true) // last: a call that opens its connection first waits for another turn
	switch f {
	case after:
		return errCut
	case dieAfter:
		w.kill(p)
		return errGone
	}
	return err
}

// look also waits for its turn, but fails only if the process has crashed.
func (p *process) look(of string, run func() error) error {
	if p.schedule("look "+of, true) == gone {
		return errGone
	}
	return run()
}

func (p *process) schedule(what string, look bool) fate {
	c := &call{p: p, what: what, look: look, fate: make(chan fate, 1)}
	p.w.mu.Lock()
	if p.dead {
		p.w.mu.Unlock()
		return gone
	}
	p.w.pending = append(p.w.pending, c)
	p.w.mu.Unlock()
	return <-c.fate
}

// sleep returns early when ctx or the process ends.
func (p *process) sleep(ctx context.Context, d time.Duration) { p.wait(ctx, d, p.rnd) }

// wait adds random nanoseconds, so that no two sleepers wake at the same instant, in an order that no seed determines.
func (p *process) wait(ctx context.Context, d time.Duration, rnd *rand.Rand) {
	t := time.NewTimer(d + time.Duration(rnd.IntN(1_000_000)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-p.ctx.Done():
	case <-t.C:
	}
}

// fork creates a random source for another goroutine of the process. Only its main goroutine may call it.
func (p *process) fork() *rand.Rand { return rand.New(rand.NewPCG(p.rnd.Uint64(), 0)) }

// every runs do repeatedly in its own goroutine, until the process ends.
func (p *process) every(d time.Duration, do func()) {
	rnd := p.fork()
	p.loops.Go(func() {
		for p.wait(p.ctx, time.Duration(rnd.Int64N(int64(d))), rnd); p.alive(); p.wait(p.ctx, d, rnd) {
			do()
		}
	})
}

// within returns a random time below d.
func (p *process) within(d time.Duration) time.Duration { return time.Duration(p.rnd.Int64N(int64(d))) }

func (p *process) alive() bool { return p.ctx.Err() == nil }

// consumerNames names consumers, and with them batches, after their process, so that a trace can be read.
func (p *process) consumerNames(shard keyspace.Shard) func() string {
	n := 0
	return func() string {
		n++
		return fmt.Sprintf("%s-shard%d-%d", p.name, shard, n)
	}
}

// steps returns the number of the current step.
func (w *world) steps() int { return int(w.at.Load()) }
