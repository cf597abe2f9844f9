package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// Plan configures a run.
type Plan struct {
	Binary string // sluice
	Queue  string // where orders wait in Redis: list or stream
	Seed   uint64
	Faults int
	Span   time.Duration // over which the faults are spread
	Lease  time.Duration
	Cast   Cast // Links is ignored
	Rate   int  // new buyers a second
	Sales  int  // one after the other; each begins before the previous one ends
	Stock  int64
	Spread int           // segments of every other sale; 0: each sale is in one shard
	Idle   time.Duration // most time from the end of the last fault until both stores are idle
}

// Result is the result of a run.
type Result struct {
	Plan     Plan
	Disk     string // how it was filled
	Struck   []Struck
	History  *History
	Books    *Books
	Verdict  Verdict
	Commands map[string]int // of the admin
	Samples  []Sample
	Recovery []time.Duration
	Idle     time.Duration // from the end of the last fault
	Wrong    []string      // violations that are not in the books
}

// Struck is a fault that has happened.
type Struck struct {
	Fault

	Began, Ended time.Duration // since the run began
}

// Violations returns all violations of the run.
func (r *Result) Violations() []string { return append(r.Verdict.Violations(), r.Wrong...) }

// Run executes a plan. It calls log with the progress.
func Run(t testenv.TB, p Plan, log func(format string, args ...any)) *Result {
	t.Helper()
	p.Cast.Links = linksOf(p.Cast)
	schedule := Draw(p.Seed, p.Faults, p.Span, p.Lease, p.Cast)
	s := newStage(t, p.Binary, p.Queue, p.Cast, p.Lease)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := s.disk.refuse(ctx); err != nil {
		t.Fatalf("chaos: %v", err)
	}
	r := &Result{Plan: p, Disk: s.disk.String(), History: NewHistory()}
	r.History.Losses = s.redis.lost.Load
	operator := newAdmin(s, r.History, p.Seed)
	buyers := newCrowd(s, r.History, p.Seed, p.Rate)
	sales := &sales{plan: p, admin: operator, buyers: buyers}
	sales.open()
	w := newWatch(s)

	selling, closeShop := context.WithCancel(ctx)
	var crowd, rest sync.WaitGroup
	crowd.Go(func() { buyers.run(selling) })
	rest.Go(func() { sales.run(selling) })
	sampling, stopSampling := context.WithCancel(ctx)
	var sampler sync.WaitGroup
	sampler.Go(func() { w.run(sampling, 250*time.Millisecond, sales.all) })

	following, settled := context.WithCancel(ctx)
	defer settled()
	r.Struck, r.Wrong = play(ctx, s, w, schedule, func(pid int) { w.killed(following, pid) }, log)
	ended := time.Now()
	closeShop()
	crowd.Wait()
	r.Idle = w.idle(ctx, ended, 4*p.Idle)
	if r.Idle > p.Idle {
		r.Wrong = append(r.Wrong, fmt.Sprintf("not idle %s after the last fault", p.Idle))
	}
	rest.Wait() // a command may still be in progress
	r.Wrong = append(append(r.Wrong, s.ended()...), s.drain(t)...)
	w.idle(ctx, time.Now(), 4*p.Idle)
	settled()
	w.following.Wait()
	r.Wrong = append(r.Wrong, w.neverWritten(r.History)...)
	stopSampling()
	sampler.Wait()
	r.Wrong = append(append(r.Wrong, operator.wrong...), s.ended()...)
	r.Commands, r.Samples, r.Recovery = operator.done, w.samples, w.recovery

	db, err := pgx.Connect(ctx, s.disk.url)
	if err != nil {
		t.Fatalf("chaos: %v", err)
	}
	defer db.Close(ctx)
	if r.Books, err = readBooks(ctx, s.redis.masters(), db, s.journals); err != nil {
		t.Fatalf("chaos: %v", err)
	}
	for id := range r.History.Sales {
		r.Books.Audits[id] = operator.audit(id)
	}
	r.Verdict = Check(r.History, r.Books)
	return r
}

// play injects each fault of a schedule at its time, concurrently with those that still last, and returns when all are
// undone.
func play(
	ctx context.Context,
	s *stage,
	w *watch,
	schedule []Fault,
	killed func(pid int),
	log func(format string, args ...any),
) (struck []Struck, wrong []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for n, f := range schedule {
		pause(ctx, time.Until(w.began.Add(f.At)))
		all.Go(func() {
			var began time.Duration
			err := s.strike(ctx, f, func(pid int) bool { return w.holds(ctx, pid) }, func(pid int) {
				began = time.Since(w.began)
				if f.Kind == WorkerKilled {
					killed(pid)
				}
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wrong = append(wrong, err.Error())
				return
			}
			struck = append(struck, Struck{f, began, time.Since(w.began)})
		})
		if (n+1)%20 == 0 {
			w.mu.Lock()
			last := w.samples[len(w.samples)-1]
			w.mu.Unlock()
			log("%5.0f s: %d faults, %.0f rows, %.0f waiting, %.0f dead", time.Since(w.began).Seconds(), n+1,
				last.Rows, last.Waiting, last.Dead)
		}
	}
	all.Wait()
	return struck, wrong
}

// idle waits until both stores are idle and returns the time since the given instant.
func (w *watch) idle(ctx context.Context, since time.Time, atMost time.Duration) time.Duration {
	db := &sqlConn{url: w.url}
	defer db.close()
	for time.Since(since) < atMost {
		if n, err := w.busy(ctx, db); err == nil && n == 0 {
			break
		}
		pause(ctx, 20*time.Millisecond)
	}
	return time.Since(since)
}
