package known

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of the memory.
const (
	MaxHolders = 2 << 20 // of a sale: 8 MiB; of a sale with more nothing is repeated
	MaxSums    = 8 << 20 // of all sales together: 32 MiB
	MaxSales   = 1024
)

const (
	fetchTimeout = 20 * time.Second       // a backend takes some two for a million
	fetchRetry   = 500 * time.Millisecond // after a failure
	fetchTooMany = 30 * time.Second       // after a list for which there is no room
	listAge      = 4 * time.Minute        // a list that is older is fetched again, and used until the new one is there, or until
	listEnd      = 5 * time.Minute        // it is this old: should a count fall and come to the old number again, it is of another past
	forgetAfter  = time.Minute            // what is known of a sale of which nothing more is heard
)

// Sales is what an edge knows of all sales. Safe for concurrent use; make it with New.
type Sales struct {
	source  Source
	now     func() int64
	log     *slog.Logger
	fetched func(ok bool)

	sales atomic.Pointer[map[string]*sale] // never changed, only replaced
	mu    sync.Mutex                       // for replacing it
	room  room

	running context.Context
	stop    context.CancelFunc
	fetches sync.WaitGroup
}

// Config is what New needs.
type Config struct {
	Source  Source
	Now     func() int64  // milliseconds that never run backwards
	Log     *slog.Logger  // nil: none
	Fetched func(ok bool) // called after each fetch of a list; nil: nobody counts
}

// New makes a memory that knows nothing yet. Close it to end its fetches.
func New(c Config) *Sales {
	k := &Sales{source: c.Source, now: c.Now, log: c.Log, fetched: c.Fetched}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.fetched == nil {
		k.fetched = func(bool) {}
	}
	k.sales.Store(&map[string]*sale{})
	k.running, k.stop = context.WithCancel(context.Background())
	return k
}

// Verdict is what becomes of a purchase.
type Verdict uint8

// The verdicts.
const (
	Pass   Verdict = iota // it goes the normal way
	Repeat                // it is answered with the record
	Renew                 // it goes the normal way, to renew the record; Release the record if it cannot have got an order
)

// Look judges a purchase by its sale and its token, which is not verified. scratch is room to decode in, and returned for the next time. The record is nil
// with Pass.
func (k *Sales) Look(now int64, id, token, scratch []byte) (*Record, Verdict, []byte) {
	s := (*k.sales.Load())[string(id)]
	if s == nil {
		return nil, Pass, scratch
	}
	r := s.use.Load()
	if r == nil || now >= r.until {
		return nil, Pass, scratch
	}
	sum, who, scratch := subject(token, scratch)
	switch {
	case who == nobody:
		return r, Repeat, scratch
	case who == anybody || r.list.has(sum):
		return nil, Pass, scratch
	}
	mine := taken | uint64(sum)
	switch turn := r.turn.Load(); {
	case turn == mine:
		return nil, Pass, scratch
	case turn == 0 && now >= r.renewal && r.turn.CompareAndSwap(0, mine):
		return r, Renew, scratch
	}
	return r, Repeat, scratch
}

// Learn takes in a refusal that a backend, asked at the time sent, said may be repeated. The answer is kept.
func (k *Sales) Learn(now, sent int64, id string, t Told, a Answer) {
	s := k.of(now, id)
	if s != nil && s.learn(now, newRecord(sent, t, a)) {
		k.fetch(s)
	}
}

// Accepted takes down that a backend has accepted a new order of the sale: there is something to sell, and somebody more who holds.
func (k *Sales) Accepted(now int64, id []byte) {
	s := (*k.sales.Load())[string(id)]
	if s == nil && validID(id) {
		s = k.of(now, string(id))
	}
	if s != nil {
		s.sold(now)
	}
}

// Changed takes down that a backend has heard of a change of the sale: what is known of it is out of date, and so is what was asked before now.
func (k *Sales) Changed(now int64, id []byte) {
	if s := (*k.sales.Load())[string(id)]; s != nil {
		s.sold(now)
	}
}

// of is what is known of a sale, from now on if nothing is; nil when there are too many.
func (k *Sales) of(now int64, id string) *sale {
	if s := (*k.sales.Load())[id]; s != nil {
		return s
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := *k.sales.Load()
	if s := all[id]; s != nil {
		return s
	}
	if len(all) >= MaxSales {
		return nil
	}
	s := &sale{id: id, room: &k.room, touched: now}
	next := maps.Clone(all)
	next[id] = s
	k.sales.Store(&next)
	return s
}

// Sweep forgets the sales of which nothing has been heard for a while. Call it once in a while.
func (k *Sales) Sweep(now int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := *k.sales.Load()
	var left map[string]*sale
	for id, s := range all {
		if !s.forget(now) {
			continue
		}
		if left == nil {
			left = maps.Clone(all)
		}
		delete(left, id)
	}
	if left != nil {
		k.sales.Store(&left)
	}
}

// forget says whether the sale is of no more interest; then it takes nothing more in.
func (s *sale) forget(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.touched < forgetAfter.Milliseconds() || s.fetching {
		return false
	}
	s.gone = true
	s.use.Store(nil)
	s.keep(nil)
	return true
}

// Sums is how many holders are in memory, of all sales.
func (k *Sales) Sums() int64 { return k.room.taken.Load() }

// Close ends the fetches under way and waits for them. Nothing may be learned after it.
func (k *Sales) Close() {
	k.mu.Lock()
	k.stop()
	k.mu.Unlock()
	k.fetches.Wait()
}

// fetch gets the list of a sale in the background.
func (k *Sales) fetch(s *sale) {
	k.mu.Lock() // none begins after Close
	defer k.mu.Unlock()
	if k.running.Err() != nil {
		return
	}
	k.fetches.Go(func() {
		ctx, cancel := context.WithTimeout(k.running, fetchTimeout)
		defer cancel()
		list, err := k.get(ctx, s.id)
		k.got(s, list, err)
	})
}

func (k *Sales) get(ctx context.Context, id string) (*holders, error) {
	header, body, err := k.source(ctx, id)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readList(header, body, id, &k.room)
}

// got ends a fetch.
func (k *Sales) got(s *sale, list *holders, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := k.now()
	s.fetching = false
	k.fetched(err == nil)
	if err != nil {
		wait := fetchRetry
		if errors.Is(err, errTooMany) {
			wait = fetchTooMany
		}
		s.retry = now + wait.Milliseconds()
		if first := !s.failed; first && k.running.Err() == nil {
			k.log.Warn("who holds orders is not known, so nothing is repeated for the sale", "sale", s.id, "err", err)
		}
		s.failed = true
		return
	}
	s.failed = false
	list.fetched = now
	s.keep(list)
	if s.latest != nil && list.accepted < s.latest.Holders {
		s.retry = now + fetchRetry.Milliseconds() // it was made before the last acceptance
	}
	s.publish(now)
}
