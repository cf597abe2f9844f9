package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Bench holds the stores that runs reuse one after the other: creating them takes longer than a run.
type Bench struct {
	mini   *miniredis.Miniredis
	names  map[string]string
	store  *tables
	books  *books
	folder string

	// Stream queues orders in the stream instead of the list.
	Stream bool
	// Tardy makes calls arrive late in every run.
	Tardy bool
}

// NewBench creates the stores in a directory.
func NewBench(dir string) (*Bench, error) {
	mini, names, err := openRedis()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "orders.db")
	db, err := store.Open(context.Background(), (&url.URL{Scheme: "sqlite", Path: path}).String(), store.Config{})
	if err != nil {
		return nil, err
	}
	books, err := openBooks(path)
	if err != nil {
		return nil, err
	}
	return &Bench{mini: mini, names: names, store: newTables(db), books: books, folder: dir}, nil
}

// Close closes the stores.
func (b *Bench) Close() error {
	b.mini.Close()
	if err := b.books.db.Close(); err != nil {
		return err
	}
	return b.store.Close()
}

// Run runs one seed with at most limit steps under faults (0: the number that the seed selects). It must be called in a
// bubble of testing/synctest.
func (b *Bench) Run(seed uint64, limit int) (Result, error) {
	b.mini.FlushAll()
	if err := b.books.empty(); err != nil {
		return Result{}, err
	}
	time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))) // order ids begin in 2020; a bubble begins in 2000
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		plan:     planOf(rnd),
		stream:   b.Stream,
		mini:     b.mini,
		store:    b.store,
		books:    b.books,
		folder:   filepath.Join(b.folder, "journals"),
		names:    b.names,
		rnd:      rnd,
		began:    time.Now(),
		redis:    connect(b.mini),
		log:      slog.New(slog.DiscardHandler),
		troubles: map[string]*troublemaker{},
		settled:  map[string]store.Settlement{},
		journals: map[string]*rebuild.JournalWriter{}, journalShards: map[string]keyspace.Shard{},
		seen:     map[string]sale.OrderID{},
		promised: map[sale.OrderID]string{},
		rows:     map[sale.OrderID]row{},
		offered:  map[string]int64{},
		empty:    map[string]int{},
		isEmpty:  map[string]bool{},
	}
	defer w.redis.Close()
	if b.Tardy {
		w.delayCalls()
	}
	w.touched.Store(true)
	w.dirty.Store(true)
	if limit > 0 {
		w.Steps = min(w.Steps, limit)
	}
	w.space = keyspace.Space{Shards: w.Shards}
	if w.Guarded {
		if err := os.RemoveAll(w.folder); err != nil {
			return Result{}, err
		}
	}
	w.startRedis()
	w.mini.SetTime(time.Now())
	w.record(fmt.Sprintf("seed %d: %+v", seed, w.plan))
	w.cast()
	w.play()
	w.end()
	w.result.Groups, w.result.Payments = int(w.groups.Load()), len(w.settled)
	w.result.Violation, w.result.Trace, w.result.Took = w.first, w.trace, time.Since(w.began)
	return w.result, nil
}

func (w *world) play() {
	for w.look() && w.result.Steps < w.Steps { // look first: no process may be within a step when calm begins
		w.strike()
		w.chores()
		w.step()
	}
	if w.first != "" {
		return
	}
	w.record("no more faults; everything is started again")
	w.mu.Lock()
	w.calm = true
	clear(w.troubles)
	w.mu.Unlock()
	for _, r := range w.roles {
		if r.now != nil {
			r.now.frozen = time.Time{}
		}
		if !r.once && r.now != nil && r.name == "admin" {
			w.kill(r.now)
			r.once = true
		}
	}
	// A lease, the longest wait of each attempt, and a few turns of each loop: then there must be nothing left to do.
	rest := 3*lease + 3*backoffCap + 10*time.Second
	if w.Guarded { // and a lock that a dead process holds, the wait for journals, twice what is known of a dead journal
		rest += 30 * time.Second
	}
	for until := time.Now().Add(rest); w.look(); {
		w.chores()
		w.step()
		if w.rests() || time.Now().After(until) {
			break
		}
	}
	if w.first != "" {
		return
	}
	if !w.rests() {
		w.violate("not at rest %s after the last fault", rest)
		return
	}
	w.checkRest()
	if w.first == "" {
		w.sellOut()
	}
}

// end stops everything, so that no goroutine outlives the run.
func (w *world) end() {
	if w.first != "" {
		w.record("VIOLATION: " + w.first)
	}
	for _, r := range w.roles {
		if r.now != nil {
			w.kill(r.now)
		}
	}
	synctest.Wait()
	for range 100 {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	for _, r := range w.roles {
		if r.now != nil {
			r.now.close()
		}
	}
}

// look waits until no process runs, records the log, and checks the invariants.
func (w *world) look() bool {
	synctest.Wait()
	w.mu.Lock()
	notes := w.notes
	w.notes = nil
	w.mu.Unlock()
	slices.Sort(notes)
	for _, n := range notes {
		w.record(n)
	}
	w.check()
	return w.first == ""
}

// chores executes everything that is due: late calls, and the start of processes that have crashed.
func (w *world) chores() {
	w.mu.Lock()
	var due []lateCall
	w.delayed = slices.DeleteFunc(w.delayed, func(c lateCall) bool {
		if time.Now().Before(c.due) {
			return false
		}
		due = append(due, c)
		return true
	})
	w.mu.Unlock()
	for _, c := range due {
		w.record("late: " + c.what)
		w.mini.SetTime(time.Now())
		w.dirty.Store(true)
		_ = c.do() // no caller waits for it
		w.check()
	}
	for _, r := range w.roles {
		switch {
		case r.now == nil:
		case !w.over(r.now) || r.once:
			continue
		case r.start.IsZero():
			r.start = time.Now().Add(time.Duration(w.rnd.Int64N(int64(2 * time.Second))))
			continue
		case time.Now().Before(r.start):
			continue
		default:
			r.now.close()
		}
		w.launch(r)
		r.start = time.Time{}
		w.result.Starts++
		w.record(r.now.name + "  starts")
	}
}

// step schedules one call of a process, or advances the clock.
func (w *world) step() {
	synctest.Wait()
	ready := w.eligible()
	if len(ready) == 0 || w.rnd.IntN(5) == 0 {
		w.pass(len(ready) == 0)
		return
	}
	c := ready[w.rnd.IntN(len(ready))]
	if c.look {
		w.letOn(c, fine)
		return
	}
	w.result.Steps++
	w.at.Store(int64(w.result.Steps))
	if !w.calm && w.rnd.Float64() < w.Freezes {
		d := lease/2 + time.Duration(w.rnd.Int64N(int64(2*lease)))
		c.p.frozen = time.Now().Add(d)
		w.result.Freezes++
		w.record(fmt.Sprintf("%s  freezes for %s before %s", c.p.name, d, c.what))
		return
	}
	if !w.calm && w.rnd.Float64() < w.Stops && w.stop(c.p) {
		return
	}
	f := w.choose(c.what)
	w.result.Faults[f]++
	w.record(strings.TrimRight(fmt.Sprintf("%s  %s  %s", c.p.name, c.what, strings.ToUpper(fateNames[f])), " "))
	w.letOn(c, f)
}

// stop starts the graceful shutdown of a process, if it has one.
func (w *world) stop(p *process) bool {
	w.mu.Lock()
	stop := p.stop
	w.mu.Unlock()
	if stop == nil || p.ctx.Err() != nil {
		return false
	}
	w.result.Stops++
	w.record(p.name + "  is shut down")
	stop()
	return true
}

func (w *world) letOn(c *call, f fate) {
	w.mu.Lock()
	w.pending = slices.DeleteFunc(w.pending, func(o *call) bool { return o == c })
	w.mu.Unlock()
	if f == dieBefore {
		w.kill(c.p)
	}
	c.fate <- f
}

// choose returns the fate of a call, by its name in the trace.
func (w *world) choose(what string) fate {
	switch x := w.rnd.Float64(); {
	case w.calm:
		return fine
	case x < w.Deaths:
		return dieBefore + fate(w.rnd.IntN(2))
	case x < w.Deaths+w.Faults && w.Gentle:
		return after + fate(w.rnd.IntN(2))
	case w.Tardy && x < w.Deaths+w.Faults && (strings.HasPrefix(what, "take ") || strings.HasPrefix(what, "ack ")):
		return late
	case w.Tardy:
		return fine
	case x < w.Deaths+w.Faults:
		return before + fate(w.rnd.IntN(4))
	}
	return fine
}

// pass advances the clock: mostly by less than any tick, sometimes by more when no process has work.
func (w *world) pass(nothing bool) {
	d := time.Duration(w.rnd.Int64N(int64(30 * time.Millisecond)))
	if nothing || w.rnd.IntN(20) == 0 {
		d = time.Duration(w.rnd.Int64N(int64(400 * time.Millisecond)))
	}
	time.Sleep(d)
	w.mini.FastForward(d) // the only way in which keys expire
}
