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
)

// round is one filling and emptying.
type round struct {
	accepted, drained, alone, memory, log, overtaken float64
	cpu                                              time.Duration
}

const longLease = time.Minute

func play(ctx context.Context, s subject, orders int) (r round, err error) {
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
	r.accepted = float64(orders) / took.Seconds()
	if r.memory, err = s.held(ctx, orders); err != nil {
		return r, err
	}
	serials, took, err := drain(ctx, s.queue(), orders, Takers)
	if err != nil {
		return r, err
	}
	r.drained, r.overtaken = float64(orders)/took.Seconds(), overtaken(serials)
	cpu2, log2, err := s.used(ctx)
	if err != nil {
		return r, err
	}
	r.cpu, r.log = (cpu2-cpu)/time.Duration(orders), (log2-log)/float64(orders)
	if log < 0 {
		r.log = -1
	}
	if err := fill(ctx, s, orders, longLease); err != nil {
		return r, err
	}
	if _, took, err = drain(ctx, s.queue(), orders, 1); err != nil {
		return r, err
	}
	r.alone = float64(orders) / took.Seconds()
	return r, nil
}

// accept lets many buyers buy at once.
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

// fill pushes messages past admission.
func fill(ctx context.Context, s subject, n int, lease time.Duration) error {
	if err := s.open(ctx, 0, lease); err != nil {
		return err
	}
	messages := make([]queue.Message, n)
	for i := range messages {
		messages[i] = message(i)
	}
	return s.queue().Push(ctx, messages...)
}

// drain takes everything, and answers the serials in the order in which they came.
func drain(ctx context.Context, q line, n, takers int) (serials []int64, took time.Duration, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for range takers {
		g.Go(func() error {
			for ack := ""; ; {
				b, lost, err := q.TakeAs(ctx, queue.NewBatchID(), Batch, ack)
				switch {
				case err != nil:
					return err
				case lost:
					return errors.New("a lease was lost")
				case len(b.Messages) == 0:
					return nil
				}
				mu.Lock()
				for _, m := range b.Messages {
					serials = append(serials, m.Serial)
				}
				mu.Unlock()
				ack = b.ID
			}
		})
	}
	err = g.Wait()
	took = time.Since(start)
	if err == nil && len(serials) != n {
		err = fmt.Errorf("%d messages of %d came out", len(serials), n)
	}
	return serials, took, err
}

// overtaken is the share of messages that came after a later one.
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

// latency lets orders come at a steady rate to one taker.
func latency(ctx context.Context, s subject, rate int, span time.Duration) (p50, p99 time.Duration, err error) {
	n := max(int(span.Seconds()*float64(rate)), 100)
	if err := s.open(ctx, n, longLease); err != nil {
		return 0, 0, err
	}
	asked := make([]time.Time, n+1) // by number of the buyer; written before it is pushed, read after it is taken
	var mu sync.Mutex
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, buyers)
	g.Go(func() error {
		start := time.Now()
		for i := 1; i <= n; i++ {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
			}
			slots <- struct{}{}
			g.Go(func() error {
				defer func() { <-slots }()
				mu.Lock()
				asked[i] = time.Now()
				mu.Unlock()
				return s.buy(ctx, i)
			})
		}
		return nil
	})
	waits := make([]time.Duration, 0, n)
	g.Go(func() error {
		for ack := ""; len(waits) < n; {
			b, _, err := s.queue().TakeAs(ctx, queue.NewBatchID(), Batch, ack)
			if err != nil {
				return err
			}
			now := time.Now()
			ack = ""
			if len(b.Messages) == 0 {
				if _, err := s.queue().Wait(ctx, time.Second); err != nil {
					return err
				}
				continue
			}
			ack = b.ID
			mu.Lock()
			for _, m := range b.Messages {
				var i int
				if _, err := fmt.Sscanf(m.Buyer, "buyer-%d", &i); err != nil {
					mu.Unlock()
					return err
				}
				waits = append(waits, now.Sub(asked[i]))
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
	inPeril    = 1000 // messages that are there when something dies
	lostBatch  = 100
	shortLease = time.Second
)

// examine measures what is not a matter of speed.
func examine(ctx context.Context, s subject, o Options) (r Row, err error) {
	r.Driver = s.label()
	if r.P50, r.P99, err = latency(ctx, s, o.Rate, o.Span); err != nil {
		return r, fmt.Errorf("latency: %w", err)
	}
	if r.Worker, err = workerDies(ctx, s); err != nil {
		return r, fmt.Errorf("a worker that dies: %w", err)
	}
	if r.Server, err = serverDies(ctx, s); err != nil {
		return r, fmt.Errorf("a server that dies: %w", err)
	}
	if err := fill(ctx, s, inPeril, longLease); err != nil {
		return r, err
	}
	first, _, err := s.queue().TakeAs(ctx, "again", lostBatch, "")
	if err != nil {
		return r, err
	}
	second, _, err := s.queue().TakeAs(ctx, "again", lostBatch, "")
	if err != nil {
		return r, err
	}
	r.Replayed = len(first.Messages) == lostBatch && slices.Equal(first.Messages, second.Messages)
	if _, err := s.queue().Release(ctx, "again"); err != nil {
		return r, err
	}
	serials, _, err := drain(ctx, s.queue(), inPeril, 1)
	if err != nil {
		return r, err
	}
	r.InOrder = slices.IsSorted(serials)
	r.Kept, err = s.left(ctx)
	return r, err
}

// workerDies lets a taker vanish with a batch.
func workerDies(ctx context.Context, s subject) (Loss, error) {
	if err := fill(ctx, s, inPeril, shortLease); err != nil {
		return Loss{}, err
	}
	gone, _, err := s.queue().TakeAs(ctx, queue.NewBatchID(), lostBatch, "")
	if err != nil {
		return Loss{}, err
	}
	seen := map[int64]int{}
	for _, m := range gone.Messages {
		seen[m.Serial]++
	}
	rest := 0
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for ack := ""; rest < inPeril && ctx.Err() == nil; {
		b, _, err := s.queue().TakeAs(ctx, queue.NewBatchID(), Batch, ack)
		if err != nil {
			return Loss{}, err
		}
		if ack = ""; len(b.Messages) > 0 {
			ack = b.ID
		} else if _, err := s.queue().Wait(ctx, 50*time.Millisecond); err != nil {
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
	return Loss{Messages: inPeril, Lost: inPeril - rest, Twice: twice}, nil
}

// serverDies kills what holds the messages, in the middle of work.
func serverDies(ctx context.Context, s subject) (*Loss, error) {
	if err := fill(ctx, s, inPeril, longLease); err != nil {
		return nil, err
	}
	if _, _, err := s.queue().TakeAs(ctx, queue.NewBatchID(), lostBatch, ""); err != nil {
		return nil, err
	}
	ours, err := s.kill(ctx)
	if err != nil || !ours {
		return nil, err
	}
	s.reopen(longLease)
	stats, err := s.queue().Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &Loss{Messages: inPeril, Lost: inPeril - int(stats.Ready+stats.Delayed+stats.Leased)}, nil
}
