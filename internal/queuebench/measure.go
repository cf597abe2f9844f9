package queuebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/internal/loop"
)

const longLease = time.Minute

// play accepts and drains once. It returns the results that Run takes the median of.
func play(ctx context.Context, s subject, orders int) (r Row, err error) {
	if err := s.open(ctx, orders, longLease); err != nil {
		return r, err
	}
	cpu, log, err := s.used(ctx)
	if err != nil {
		return r, err
	}
	took, err := accept(ctx, s, orders)
	if err != nil {
		return r, err
	}
	r.Accepted = float64(orders) / took.Seconds()
	if r.Memory, err = s.held(ctx, orders); err != nil {
		return r, err
	}
	serials, took, err := drain(ctx, s, orders, Takers)
	if err != nil {
		return r, err
	}
	r.Drained, r.Overtaken = float64(orders)/took.Seconds(), overtaken(serials)
	cpu2, log2, err := s.used(ctx)
	if err != nil {
		return r, err
	}
	r.CPU, r.AOF = (cpu2-cpu)/time.Duration(orders), (log2-log)/float64(orders)
	if log < 0 {
		r.AOF = -1
	}
	if err := fill(ctx, s, orders, longLease); err != nil {
		return r, err
	}
	if _, took, err = drain(ctx, s, orders, 1); err != nil {
		return r, err
	}
	r.Alone = float64(orders) / took.Seconds()
	return r, nil
}

// accept buys orders units with concurrent buyers and returns the duration.
func accept(ctx context.Context, s subject, orders int) (time.Duration, error) {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range buyers {
		g.Go(func() error {
			for {
				n := int(next.Add(1))
				if n > orders {
					return nil
				}
				if err := s.buy(ctx, n); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return time.Since(start), err
}

// fill opens an empty queue and pushes n messages without admission.
func fill(ctx context.Context, s subject, n int, lease time.Duration) error {
	if err := s.open(ctx, 0, lease); err != nil {
		return err
	}
	messages := make([]queue.Message, n)
	for i := range messages {
		messages[i] = message(i)
	}
	return s.Push(ctx, messages...)
}

// taker is one consumer of a queue.
type taker struct {
	from     subject
	consumer queue.Consumer // empty: not registered
	batches  int
	last     string // batch that the next take acknowledges; empty: none
}

// take acknowledges the previous batch and takes the next one. lost: the lease of the previous batch had expired.
func (t *taker) take(ctx context.Context, limit int) (b queue.Batch, lost bool, err error) {
	if t.consumer == "" {
		if t.consumer, err = t.from.Register(ctx, queue.NewConsumerName()); err != nil {
			return queue.Batch{}, false, err
		}
	}
	t.batches++
	b, lost, err = t.from.TakeAs(ctx, t.consumer.BatchID(t.batches), limit, t.last)
	if t.last = ""; len(b.Messages) > 0 {
		t.last = b.ID
	}
	return b, lost, err
}

// drain takes n messages and returns their serials in the order in which they were taken.
func drain(ctx context.Context, s subject, n, takers int) (serials []int64, took time.Duration, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range takers {
		g.Go(func() error {
			t := taker{from: s}
			for {
				b, lost, err := t.take(ctx, Batch)
				switch {
				case err != nil:
					return err
				case lost:
					return errors.New("a lease expired during the drain")
				case len(b.Messages) == 0:
					return nil
				}
				mu.Lock()
				for _, m := range b.Messages {
					serials = append(serials, m.Serial)
				}
				mu.Unlock()
			}
		})
	}
	err = g.Wait()
	took = time.Since(start)
	if err == nil && len(serials) != n {
		err = fmt.Errorf("%d of %d messages were drained", len(serials), n)
	}
	return serials, took, err
}

// overtaken returns the share of messages that were taken after a message accepted later.
func overtaken(serials []int64) float64 {
	latest, behind := int64(0), 0
	for _, s := range serials {
		if s < latest {
			behind++
		}
		latest = max(latest, s)
	}
	return float64(behind) / float64(max(len(serials), 1))
}

// latency buys at a steady rate while one goroutine takes, and returns percentiles from request to take.
func latency(ctx context.Context, s subject, rate int, span time.Duration) (p50, p99 time.Duration, err error) {
	n := max(int(span.Seconds()*float64(rate)), 100)
	if err := s.open(ctx, n, longLease); err != nil {
		return 0, 0, err
	}
	requested := make([]time.Time, n+1) // by number of the buyer
	var mu sync.Mutex
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, buyers)
	g.Go(func() error {
		start := time.Now()
		for i := 1; i <= n; i++ {
			loop.Sleep(ctx, time.Until(start.Add(time.Duration(i)*time.Second/time.Duration(rate))))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			slots <- struct{}{}
			g.Go(func() error {
				defer func() { <-slots }()
				mu.Lock()
				requested[i] = time.Now()
				mu.Unlock()
				return s.buy(ctx, i)
			})
		}
		return nil
	})
	waits := make([]time.Duration, 0, n)
	g.Go(func() error {
		t := taker{from: s}
		for len(waits) < n {
			b, _, err := t.take(ctx, Batch)
			if err != nil {
				return err
			}
			now := time.Now()
			if len(b.Messages) == 0 {
				if _, err := s.Wait(ctx, time.Second); err != nil {
					return err
				}
				continue
			}
			mu.Lock()
			for _, m := range b.Messages {
				var i int
				if _, err := fmt.Sscanf(m.Buyer, "buyer-%d", &i); err != nil {
					mu.Unlock()
					return err
				}
				waits = append(waits, now.Sub(requested[i]))
			}
			mu.Unlock()
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	slices.Sort(waits)
	return waits[len(waits)/2], waits[len(waits)*99/100], nil
}

const (
	queued     = 1000 // messages in the queue when a process is killed
	takenBatch = 100  // messages of these in the taker's batch
	shortLease = time.Second
)

// examine measures latency, losses, order and replay.
func examine(ctx context.Context, s subject, o Options) (r Row, err error) {
	r.Driver = s.label()
	if r.P50, r.P99, err = latency(ctx, s, o.Rate, o.Span); err != nil {
		return r, fmt.Errorf("latency: %w", err)
	}
	if r.Worker, err = killWorker(ctx, s); err != nil {
		return r, fmt.Errorf("killed worker: %w", err)
	}
	if r.Server, err = killServer(ctx, s); err != nil {
		return r, fmt.Errorf("killed server: %w", err)
	}
	if err := fill(ctx, s, queued, longLease); err != nil {
		return r, err
	}
	t := taker{from: s}
	first, _, err := t.take(ctx, takenBatch)
	if err != nil {
		return r, err
	}
	second, _, err := s.TakeAs(ctx, first.ID, takenBatch, "")
	if err != nil {
		return r, err
	}
	r.Replayed = len(first.Messages) == takenBatch && slices.Equal(first.Messages, second.Messages)
	if _, err := s.Release(ctx, first.ID); err != nil {
		return r, err
	}
	serials, _, err := drain(ctx, s, queued, 1)
	if err != nil {
		return r, err
	}
	r.InOrder = slices.IsSorted(serials)
	r.Kept, err = s.left(ctx)
	return r, err
}

// killWorker abandons a leased batch, and drains the queue until the lease has expired.
func killWorker(ctx context.Context, s subject) (Loss, error) {
	if err := fill(ctx, s, queued, shortLease); err != nil {
		return Loss{}, err
	}
	killed, t := taker{from: s}, taker{from: s}
	gone, _, err := killed.take(ctx, takenBatch)
	if err != nil {
		return Loss{}, err
	}
	seen := map[int64]int{}
	for _, m := range gone.Messages {
		seen[m.Serial]++
	}
	rest := 0
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for rest < queued && waiting.Err() == nil {
		b, _, err := t.take(ctx, Batch)
		if err == nil && len(b.Messages) == 0 {
			_, err = s.Wait(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return Loss{}, err
		}
		for _, m := range b.Messages {
			seen[m.Serial]++
			rest++
		}
	}
	twice := 0
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	return Loss{Messages: queued, Lost: queued - rest, Twice: twice}, nil
}

// killServer kills the process that holds the messages while a batch is leased.
func killServer(ctx context.Context, s subject) (*Loss, error) {
	if err := fill(ctx, s, queued, longLease); err != nil {
		return nil, err
	}
	t := taker{from: s}
	if _, _, err := t.take(ctx, takenBatch); err != nil {
		return nil, err
	}
	ours, err := s.kill(ctx)
	if err != nil || !ours {
		return nil, err
	}
	stats, err := s.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &Loss{Messages: queued, Lost: queued - int(stats.Ready+stats.Delayed+stats.Leased)}, nil
}
