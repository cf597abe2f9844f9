package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

const (
	// groupSize bounds one run of the script: what Redis does for a group, it does for nobody else meanwhile.
	groupSize = 64
	// groupsInFlight is how many groups of one sale are under way at once: while Redis works on one, this process reads the answers of another.
	groupsPerSale = 2
	// maxWaiting bounds the requests that wait for a Redis that does not answer. Beyond it, one more fails at once unless its sale has less than its share
	// of the places, which is the same for all sales that somebody waits for: a hot sale fills what is free, and takes nothing from the others.
	maxWaiting = 20_000
	// mostWaiting is the end: that many wait only when many sales are hot one after the other.
	maxWaitingTotal = 2 * maxWaiting
)

var errTooManyWaiting = errors.New("too many requests wait for Redis")

// groups lets concurrent requests for one sale share a run of the script. A request that comes alone goes at once; those that come while
// groupsInFlight groups are under way wait and go together with the next. No goroutine is left behind when nobody asks.
type groups struct {
	run     func(ctx context.Context, saleID string, group []*waiter)
	timeout time.Duration // of a group, and of the wait for its turn

	idle sync.Pool // of *waiter

	mu      sync.Mutex
	sales   map[string]*saleQueue // only those with requests
	waiting int
}

// line is what waits for one sale.
type saleQueue struct {
	waiting []*waiter
	running int
}

// waiter is one request on its way; done gets one value when decision and err are there.
type waiter struct {
	request  Request
	id       sale.OrderID
	since    time.Time
	decision Decision
	err      error
	done     chan struct{}
}

// decide waits for the decision on r.
func (g *groups) decide(ctx context.Context, r Request, id sale.OrderID) (Decision, error) {
	w, _ := g.idle.Get().(*waiter)
	if w == nil {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.request, w.id, w.since, w.decision, w.err = r, id, time.Now(), Decision{}, nil
	if err := g.join(w); err != nil {
		return Decision{}, err
	}
	select {
	case <-w.done:
		d, err := w.decision, w.err
		g.idle.Put(w)
		return d, err
	case <-ctx.Done():
		return Decision{}, ctx.Err() // w still belongs to its group
	}
}

func (g *groups) join(w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.sales[w.request.SaleID]
	if g.full(l) {
		return errTooManyWaiting
	}
	g.waiting++
	if l == nil {
		l = &saleQueue{}
		g.sales[w.request.SaleID] = l
	}
	l.waiting = append(l.waiting, w)
	if l.running < groupsPerSale {
		l.running++
		go g.runQueue(w.request.SaleID, l)
	}
	return nil
}

// crowded tells whether there is no place in a line; nil is that of a sale for which nobody waits yet. mu is held.
func (g *groups) full(l *saleQueue) bool {
	if g.waiting < maxWaiting {
		return false
	}
	if l == nil {
		return g.waiting >= maxWaitingTotal
	}
	return g.waiting >= maxWaitingTotal || len(l.waiting) >= maxWaiting/len(g.sales)
}

// fly runs group after group until nobody waits any more.
func (g *groups) runQueue(saleID string, l *saleQueue) {
	var group []*waiter
	for {
		if group = g.next(saleID, l, group[:0]); len(group) == 0 {
			return
		}
		g.runFresh(saleID, group)
		for _, w := range group {
			w.done <- struct{}{}
		}
	}
}

// next takes those who are first in line. When there is nobody, this flight is over.
func (g *groups) next(saleID string, l *saleQueue, group []*waiter) []*waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(l.waiting), groupSize)
	if n == 0 {
		if l.running--; l.running == 0 {
			delete(g.sales, saleID)
		}
		return nil
	}
	group = append(group, l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	g.waiting -= n
	return group
}

// fresh runs those of the group whose turn came in time. Nobody listens to the others any more, and they must not buy.
func (g *groups) runFresh(saleID string, group []*waiter) {
	fresh := group
	if late := time.Now().Add(-g.timeout); group[0].since.Before(late) {
		fresh = nil
		for _, w := range group {
			if w.since.Before(late) {
				w.err = fmt.Errorf("waited %v for its turn", g.timeout)
			} else {
				fresh = append(fresh, w)
			}
		}
		if len(fresh) == 0 {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	g.run(ctx, saleID, fresh)
}

// runGroup decides a group of requests for one sale, and sees to it that the orders are kept as the answers promise.
func (a *Admitter) runGroup(ctx context.Context, saleID string, group []*waiter) {
	var generation int64
	if a.record != nil {
		generation = a.record.Generation()
	}
	if a.replicas.count > 0 {
		a.runAndWait(ctx, saleID, group)
	} else {
		a.runScript(ctx, a.client, saleID, group)
	}
	a.recordAccepted(saleID, generation, group)
}

// ask asks Redis about a group.
func (a *Admitter) runScript(ctx context.Context, client redis.Scripter, saleID string, group []*waiter) {
	k := a.keys.of(a.space, saleID)
	shard := a.space.ShardOf(saleID)
	keys := make([]string, 5, 6+len(group))
	keys[0], keys[1], keys[2], keys[3], keys[4] = k.sale, k.stock, k.buyers, k.ready, k.wake
	args := make([]any, 1, 4+4*len(group))
	args[0] = saleID
	for _, w := range group {
		r := &w.request
		keys = append(keys, shard.Dedup(r.Buyer, r.Key))
		args = append(args, w.id.String(), r.Buyer, r.Fingerprint, max(r.KeyTTL.Milliseconds(), 1))
	}
	now, tell := time.Now().UnixMilli(), 0
	if now-k.published.Load() >= publishInterval.Milliseconds() {
		tell = 1
	}
	args = append(args, a.bound, tell)
	if a.stream {
		keys = append(keys, k.orders)
	}
	keys, args = appendTraces(shard, group, keys, args)
	text, err := a.script.Run(ctx, client, keys, args...).Text()
	rest := text
	for i, w := range group {
		if err != nil {
			w.err = err
			continue
		}
		answer, after, more := strings.Cut(rest, "\n")
		if more != (i < len(group)-1) {
			err = fmt.Errorf("the script answered %d purchases with %q", len(group), text)
			w.err = err
			continue
		}
		w.decision, w.err = parseDecision(answer, w.id)
		rest = after
	}
	if tell == 1 && slices.ContainsFunc(group, func(w *waiter) bool { return w.err == nil && w.decision.Outcome == sale.Accepted }) {
		k.published.Store(now)
	}
}

// tellEvery bounds how often one process has the units left of a sale signalled while it sells.
const publishInterval = 250 * time.Millisecond

// writeDown records the orders that a group is told of with a 202, all at once. Also those of repetitions: who accepted them may have died before it could
// write them down. One that has become a row since, paid or cancelled, is recorded for nothing: a row wins over every journal.
func (a *Admitter) recordAccepted(saleID string, generation int64, group []*waiter) {
	if a.record == nil {
		return
	}
	var accepted []sale.Order
	for _, w := range group {
		if w.err == nil && (w.decision.Outcome == sale.Accepted || w.decision.Outcome == sale.Replayed) {
			accepted = append(accepted, sale.Order{ID: w.decision.OrderID, SaleID: saleID, Buyer: w.request.Buyer})
		}
	}
	if len(accepted) > 0 {
		a.record.Record(generation, accepted)
	}
}
