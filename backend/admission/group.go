package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

const (
	// groupSize bounds one run of the script, which blocks Redis for other commands.
	groupSize = 64
	// maxWaiting is the number of waiting requests from which a bound per part applies: an equal share of maxWaiting for
	// each part that has a queue. The requests for one part then do not cause rejections in the other parts.
	maxWaiting = 20_000
	// maxWaitingTotal bounds all waiting requests.
	maxWaitingTotal = 2 * maxWaiting
)

var errTooManyWaiting = errors.New("too many requests wait for Redis")

// groups batches concurrent requests for one part of a sale into runs of the script. A request starts a run immediately
// if no run of its part is in flight; otherwise it joins the next run. A part has one goroutine while requests wait or
// a run is in flight, and none otherwise.
type groups struct {
	run     func(ctx context.Context, part spread.Part, group []*waiter)
	timeout time.Duration // of a run, and of the wait for it

	idle sync.Pool // of *waiter

	mu      sync.Mutex
	queues  map[spread.Part][]*waiter // waiting requests by part; a part is present while a goroutine runs its groups
	waiting int
}

// waiter is one request. part is the home of its buyer. done receives one value when decision and err are set.
type waiter struct {
	part     spread.Part
	request  Request
	id       sale.OrderID
	since    time.Time
	decision Decision
	err      error
	done     chan struct{}
}

// decide returns the decision on r. If the error is errTooManyWaiting, r is not decided. After any other error, r may
// have been decided or may be decided later.
func (g *groups) decide(ctx context.Context, part spread.Part, r Request, id sale.OrderID) (Decision, error) {
	w, _ := g.idle.Get().(*waiter)
	if w == nil {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.part, w.request, w.id, w.decision, w.err = part, r, id, Decision{}, nil
	if err := g.join(w); err != nil {
		return Decision{}, err
	}
	select {
	case <-w.done:
		d, err := w.decision, w.err
		g.idle.Put(w)
		return d, err
	case <-ctx.Done():
		return Decision{}, ctx.Err() // the group still uses w
	}
}

// join adds a request to the queue of its part, and starts the goroutine of a part without one. It returns
// errTooManyWaiting if the queue is full.
func (g *groups) join(w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue, running := g.queues[w.part]
	if g.full(queue) {
		return errTooManyWaiting
	}
	w.since = time.Now()
	g.waiting++
	g.queues[w.part] = append(queue, w)
	if !running {
		go g.runQueue(w.part)
	}
	return nil
}

// full reports whether a queue rejects another request. The caller holds mu.
func (g *groups) full(queue []*waiter) bool {
	hot := len(queue) > 0 && len(queue) >= maxWaiting/len(g.queues) // a queue with requests is in g.queues
	return g.waiting >= maxWaitingTotal || g.waiting >= maxWaiting && hot
}

// runQueue runs groups until no request waits for the part.
func (g *groups) runQueue(part spread.Part) {
	var group []*waiter
	for {
		if group = g.next(part, group[:0]); len(group) == 0 {
			return
		}
		g.runFresh(part, group)
		for _, w := range group {
			w.done <- struct{}{}
		}
	}
}

// next appends the oldest requests of the queue to group. If there are none, it removes the part, and its goroutine
// must end.
func (g *groups) next(part spread.Part, group []*waiter) []*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[part]
	n := min(len(queue), groupSize)
	if n == 0 {
		delete(g.queues, part)
		return nil
	}
	group = append(group, queue[:n]...)
	rest := copy(queue, queue[n:])
	clear(queue[rest:])
	g.queues[part] = queue[:rest]
	g.waiting -= n
	return group
}

// runFresh runs the requests that waited for less than the timeout. The others get an error, because their callers may
// have stopped waiting.
func (g *groups) runFresh(part spread.Part, group []*waiter) {
	limit := time.Now().Add(-g.timeout)
	for len(group) > 0 && group[0].since.Before(limit) { // oldest first
		group[0].err = fmt.Errorf("the request waited %v for Redis", g.timeout)
		group = group[1:]
	}
	if len(group) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	g.run(ctx, part, group)
}

// runGroup decides a group of requests for one part of a sale, waits for the replicas and records the orders.
func (a *Admitter) runGroup(ctx context.Context, part spread.Part, group []*waiter) {
	k := a.keys.get(a.cfg.Space, part)
	var generation int64
	if a.cfg.Recorder != nil {
		var err error
		if generation, err = a.cfg.Recorder.Generation(k.shard); err != nil {
			for _, w := range group {
				w.err = err
			}
			return
		}
	}
	if a.cfg.Replicas > 0 {
		a.runAndWait(ctx, k, group)
	} else {
		a.runScript(ctx, a.cfg.Client, k, group)
	}
	a.recordAccepted(k, generation, group)
}

// publishInterval bounds how often one process publishes the units left of a sale.
const publishInterval = 250 * time.Millisecond

// runScript runs the script for a group.
func (a *Admitter) runScript(ctx context.Context, client redis.Scripter, k *partKeys, group []*waiter) {
	keys := make([]string, 5, 6+len(group))
	keys[0], keys[1], keys[2], keys[3], keys[4] = k.sale, k.stock, k.buyers, k.ready, k.wake
	now := time.Now().UnixMilli()
	publish := now-k.published.Load() >= publishInterval.Milliseconds()
	args := make([]any, 4, 4+3*len(group))
	args[0], args[1], args[2] = k.target, a.cfg.MaxReady, publish
	for _, w := range group {
		r := &w.request
		var request string
		if r.KeyTTL > 0 {
			keys = append(keys, k.shard.Dedup(r.Buyer, r.Key))
			request = r.Fingerprint + " " + strconv.FormatInt(max(r.KeyTTL.Milliseconds(), 1), 10)
		} else {
			request = keyspace.Request(r.Key)
		}
		args = append(args, w.id.String(), r.Buyer, request)
	}
	if a.cfg.Stream {
		keys = append(keys, k.orders)
	}
	keys, traces, parents := appendTraces(k.shard, group, keys)
	args[3] = traces
	end := a.traceScript(parents)
	text, err := a.script.Run(ctx, client, keys, args...).Text()
	end(err)
	rest := text
	for i, w := range group {
		if err != nil {
			w.err = err
			continue
		}
		line, after, more := strings.Cut(rest, "\n")
		if more != (i < len(group)-1) {
			err = fmt.Errorf("the script returned %q for %d purchases", text, len(group))
			w.err = err
			continue
		}
		w.decision, w.err = parseDecision(line, w.id)
		rest = after
	}
	if publish && slices.ContainsFunc(group, (*waiter).accepted) {
		k.published.Store(now)
	}
}

// recordAccepted records the orders of a group that get a 202. It includes replays, because the process that accepted
// them may have crashed before it recorded them. Recording an order that has become a row has no effect.
func (a *Admitter) recordAccepted(k *partKeys, generation int64, group []*waiter) {
	if a.cfg.Recorder == nil {
		return
	}
	var accepted []sale.Order
	for _, w := range group {
		if w.hasOrder() {
			accepted = append(accepted, sale.Order{ID: w.decision.OrderID, SaleID: k.part.SaleID, Buyer: w.request.Buyer})
		}
	}
	if len(accepted) > 0 {
		if err := a.cfg.Recorder.Record(k.shard, generation, accepted); err != nil {
			failOrders(group, err)
		}
	}
}

// accepted reports whether this request created an order.
func (w *waiter) accepted() bool { return w.err == nil && w.decision.Outcome == sale.Accepted }

// hasOrder reports whether the request gets a 202.
func (w *waiter) hasOrder() bool {
	return w.accepted() || w.err == nil && w.decision.Outcome == sale.Replayed
}
