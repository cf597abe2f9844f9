package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/queue"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// queue opens the queue of a shard.
func (w *world) queue(client redisconn.Client, shard keyspace.Shard, cfg queue.Config) *queue.List {
	cfg.Stream = w.stream
	return queue.NewList(client, shard, cfg)
}

// world is one run: the two stores, the processes, and the records of an observer with access to everything.
type world struct {
	plan
	stream bool // orders are queued in the stream
	mini   *miniredis.Miniredis
	redis  redisconn.Client // without faults
	store  *tables
	books  *books
	space  keyspace.Space
	folder string            // of the journals
	names  map[string]string // of scripts, by digest
	rnd    *rand.Rand        // the scheduler's; each process has its own
	roles  []*role
	log    *slog.Logger
	began  time.Time // when the run began

	mu            sync.Mutex
	pending       []*call
	delayed       []lateCall
	notes         []string
	answers       []answer
	refused       []answer    // of sales with several segments that were sold out
	first         string      // the first violation
	dirty         atomic.Bool // a store may have changed since the last check
	touched       atomic.Bool // SQL may have changed
	calm          bool        // no more faults
	trace         []string
	result        Result
	troubles      map[string]*troublemaker
	seen          map[string]sale.OrderID           // buyer and request key -> the order they got
	settled       map[string]store.Settlement       // callback of the payment provider -> its answer
	journals      map[string]*rebuild.JournalWriter // by backend and shard
	journalShards map[string]keyspace.Shard
	servers       atomic.Int64            // how often Redis was started
	memory        memory                  // the data of an older Redis after the next disaster
	promised      map[sale.OrderID]string // every confirmed order -> buyer
	rows          map[sale.OrderID]row
	units         map[string]units               // by sale, as of the last read of SQL
	allocations   map[string][]spread.Allocation // by sale with several segments
	offered       map[string]int64               // by sale with several segments: the stock that all segments had applied
	isEmpty       map[string]bool                // by such a sale: no unit of it is left
	empty         map[string]int                 // by such a sale: the last step at which no unit of it was left
	at            atomic.Int64                   // result.Steps, for goroutines
	groups        atomic.Int64                   // purchases that were decided together with others
}

type lateCall struct {
	what string
	due  time.Time
	do   func() error
}

// role is a program that is started again after a crash.
type role struct {
	name  string
	main  func(*process)
	runs  int
	now   *process
	start time.Time // when it is to be started again
	once  bool      // it is not started again when it has finished
}

func (w *world) kill(p *process) {
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return
	}
	p.dead = true
	var left, its []*call
	for _, c := range w.pending {
		if c.p == p {
			its = append(its, c)
		} else {
			left = append(left, c)
		}
	}
	w.pending = left
	w.mu.Unlock()
	p.cancel()
	for _, c := range its {
		c.fate <- gone
	}
}

// over reports whether a process has stopped and its goroutine has returned.
func (w *world) over(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.ended
}

func (w *world) launch(r *role) {
	r.runs++
	name := r.name
	if r.runs > 1 {
		name = fmt.Sprintf("%s.%d", r.name, r.runs)
	}
	p := &process{w: w, name: name, rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 0))}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	w.open(p)
	r.now = p
	go func() {
		r.main(p)
		p.loops.Wait()
		w.mu.Lock()
		p.ended = true
		w.mu.Unlock()
	}()
}

func (w *world) delay(what string, again func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delayed = append(w.delayed, lateCall{what, time.Now().Add(time.Duration(w.rnd.Int64N(int64(2 * lease)))), again})
}

// note adds a line to the trace. Lines of one step are sorted, because concurrent goroutines have no order.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == "" {
		w.first = fmt.Sprintf(format, args...)
	}
}

// record adds a line to the trace, with its step and time. Goroutines of processes use note.
func (w *world) record(line string) {
	at := time.Since(w.began).Truncate(time.Millisecond)
	w.trace = append(w.trace, fmt.Sprintf("%5d %9s  %s", w.result.Steps, at, line))
}

func (w *world) queueConfig(p *process) queue.Config {
	return queue.Config{
		Lease:       lease,
		MaxAttempts: w.MaxAttempts,
		MaxCrashes:  w.MaxCrashes,
		BackoffBase: 200 * time.Millisecond,
		BackoffCap:  backoffCap,
		CallTimeout: time.Second,
		Jitter:      p.rnd.Float64,
	}
}

// describe returns the name of a Redis command for the trace, and a function that checks its reply for a violation of
// the lease.
func (w *world) describe(args []any) (what string, watch func(func() error) error) {
	name := strings.ToLower(fmt.Sprint(args[0]))
	unwatched := func(do func() error) error { return do() }
	if name != "evalsha" {
		return name, unwatched
	}
	n, _ := args[2].(int)
	script, argv := w.names[fmt.Sprint(args[1])], args[3+n:]
	what = script
	switch script {
	case "take":
		what += fmt.Sprintf(" %v ack %q", argv[2], argv[3])
	case "ack", "release", "extend_lease", "reclaim":
		what += fmt.Sprintf(" %v", argv[0])
	case "admit":
		for i := 4; i+2 < len(argv); i += 3 {
			what += fmt.Sprintf(" %v:%s", argv[i+1], shortText(fmt.Sprint(argv[i])))
		}
		if len(argv) > 7 {
			w.groups.Add(1)
		}
	case "dead_retry", "dead_begin_cancel", "dead_finish_cancel":
		what += " " + shortText(fmt.Sprint(argv[0]))
	}
	if script != "reclaim" {
		return what, unwatched
	}
	leases := fmt.Sprint(args[3])
	return what, func(do func() error) error { return w.watchReclaim(leases, fmt.Sprint(argv[0]), do) }
}

// watchReclaim checks that no lease is reclaimed before it expires, and that none expires without a cause.
func (w *world) watchReclaim(leases, batch string, do func() error) error {
	deadline, leased := w.zset(leases)[batch]
	err := do()
	if _, still := w.zset(leases)[batch]; !leased || still {
		return err
	}
	now := time.Now().UnixMilli()
	switch {
	case int64(deadline) > now:
		w.violate("batch %s was reclaimed %d ms before its lease ran out", batch, int64(deadline)-now)
	case w.Gentle:
		w.violate("the lease of batch %s expired, and no process crashed or froze", batch)
	}
	return err
}

func short(id sale.OrderID) string { return fmt.Sprintf("#%d", id.Sequence()) }

func shortText(id string) string {
	n, err := sale.ParseOrderID(id)
	if err != nil {
		return id
	}
	return short(n)
}

func ids(orders []sale.Order) string {
	var b strings.Builder
	for i, o := range orders {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(short(o.ID))
	}
	return b.String()
}

// eligible returns the pending calls of processes that are not frozen, in an order that does not depend on which
// goroutine came first.
func (w *world) eligible() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ready []*call
	for _, c := range w.pending {
		if !time.Now().Before(c.p.frozen) {
			ready = append(ready, c)
		}
	}
	slices.SortStableFunc(ready, func(a, b *call) int {
		if d := strings.Compare(a.p.name, b.p.name); d != 0 {
			return d
		}
		return strings.Compare(a.what, b.what)
	})
	return ready
}
