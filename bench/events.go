package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
	"sluice/test/testenv"
)

// eventGroups are the groups that receive every order. Their handlers do nothing.
var eventGroups = [...]string{"points", "web-push", "webhooks"}

// eventCount is the number of rows with unpublished events at the start of a run.
const eventCount = 60_000

// eventTarget is the least ratio of our rate to Watermill's.
const eventTarget = 3

// eventSide is one way from committed rows to the groups. It calls handled with the id of each event when the handler
// of a group is done, and runs until ctx ends.
type eventSide struct {
	name string
	run  func(ctx context.Context, handled func(id string)) error
}

// measureEvents measures how fast order events are published, and then how long it takes from a commit until the last
// of the groups is done: both sides at half the rate of the slower one, and ours at half of its own.
func measureEvents(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("events", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 5, "seconds of load in each round of the lag")
	batch := flags.Int("batch", perBatch, "orders in a transaction, and events that a step of each side handles together")
	if err := parse(flags, args); err != nil {
		return err
	}
	r := newEventRun(s)
	r.batch = *batch
	count, target := eventCount, float64(eventTarget)
	if *batch != perBatch {
		count, target = eventCount/10, 0 // for orientation
	}
	best, err := fastest(ctx, watermillSettings, func(c watermillSetting) measurement {
		return r.rate(r.watermill(c), count/20)
	})
	if err != nil {
		return err
	}
	ours, theirs := r.ours(), r.watermill(best)
	c := contest{
		name: "events", unit: "events", cost: func() float64 { return r.spent }, costOf: "Redis",
		contestants: []contestant{{ours.name, r.rate(ours, count)}, {theirs.name, r.rate(theirs, count/4)}},
		ratios:      []ratio{{"row to three groups", ours.name, theirs.name, target, 0}},
	}
	speed, err := c.report(ctx, *rounds)
	if err != nil {
		return err
	}
	own, other := median(speed[0].oursEach), median(speed[0].baselineEach)
	half := math.Floor(min(own, other) / 2)
	sides := []eventSide{ours, theirs, ours}
	lags := []latency{
		{name: ours.name, rate: half},
		{name: theirs.name, rate: half},
		{name: ours.name, rate: math.Floor(own / 2)},
	}
	if err := latencies(ctx, "lag", *rounds, lags, func(i int) ([]float64, error) {
		return r.lag(ctx, sides[i], lags[i].rate, *seconds)
	}); err != nil {
		return err
	}
	fmt.Println("\nfrom the commit until the last of three groups is done, ms: median of the rounds (lowest..highest)")
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\torders\tp50\tp99\t")
	for _, l := range lags {
		fmt.Fprintf(t, "%s\t%s/s\t%s\t%s\t\n", l.name, number(l.rate), middle(l.p50), middle(l.p99))
	}
	return t.Flush()
}

// eventRun is shared by both sides: orders in a PostgreSQL that waits for the disk, the outbox that is written with
// them, and one Redis.
type eventRun struct {
	*writers

	redis *testenv.Redis
	plain redisconn.Client
	wake  loop.Wake // has a value when something was committed
	batch int       // orders in a transaction, events in a step
	spent float64   // microseconds of Redis's processor time for one event of the last run
}

func newEventRun(s *stage) *eventRun {
	r := &eventRun{redis: testenv.StartRedis(s), wake: loop.NewWake(), batch: perBatch}
	r.plain = r.redis.Client()
	r.writers = newWriters(s, settings{}, r.wake.Up)
	return r
}

// ours is the relay and a consumer for each group, as the program runs them.
func (r *eventRun) ours() eventSide {
	return eventSide{"relay and groups", func(ctx context.Context, handled func(string)) error {
		client, err := redisconn.Open(r.redis.URL, redisconn.Blocking(4*len(eventGroups)))
		if err != nil {
			return err
		}
		defer client.Close()
		space := keyspace.Space{}
		var running sync.WaitGroup
		defer running.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		running.Go(func() { _ = events.RunWaker(ctx, client, space, r.wake) })
		relay := events.NewRelay(client, space, events.NewStore(r.DB), events.RelayConfig{Batch: r.batch})
		running.Go(func() { _ = relay.Run(ctx) })
		for _, group := range eventGroups {
			handler := func(_ context.Context, batch []events.Event) error {
				for _, e := range batch {
					handled(e.ID)
				}
				return nil
			}
			c, err := events.New(client, space, events.NewStore(r.DB), group, handler, events.Config{Batch: r.batch})
			if err != nil {
				return err
			}
			running.Go(func() { _ = c.Run(ctx) })
		}
		<-ctx.Done()
		return nil
	}}
}

// rate measures the events per second from n committed rows to all groups.
func (r *eventRun) rate(side eventSide, n int) measurement {
	return func(ctx context.Context) (perSecond float64, err error) {
		if err := r.empty(ctx); err != nil {
			return 0, err
		}
		for batch := range slices.Chunk(r.ids.orders(n), r.batch) {
			if err := r.Write(ctx, batch); err != nil {
				return 0, err
			}
		}
		before, err := redisCPU(ctx, r.plain)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		tally := newTally(n * len(eventGroups))
		err = r.while(ctx, side, func(string) { tally.add(1) }, func() error { return tally.wait(ctx) })
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		after, err := redisCPU(ctx, r.plain)
		r.spent = (after - before) * 1e6 / float64(n)
		return float64(n) / took.Seconds(), err
	}
}

func (r *eventRun) empty(ctx context.Context) error {
	_, err := r.sql.Exec(ctx, "DELETE FROM event_groups")
	return errors.Join(err, r.fresh(ctx), r.plain.FlushAll(ctx).Err())
}

// while runs a side for as long as do takes.
func (r *eventRun) while(ctx context.Context, side eventSide, handled func(string), do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- side.run(ctx, handled) }()
	err := do()
	stop()
	return errors.Join(err, <-ended)
}

// lag has orders written at a rate, a batch each 20 ms, and returns for each of them the time from its commit until
// the last group was done, in ms.
func (r *eventRun) lag(ctx context.Context, side eventSide, rate, seconds float64) ([]float64, error) {
	if err := r.empty(ctx); err != nil {
		return nil, err
	}
	const every = 20 * time.Millisecond
	n := int(rate * seconds)
	all := r.ids.orders(n)
	index := make(map[string]int, n)
	for i, o := range all {
		index[events.ID(o.ID, "created")] = i
	}
	committed, report, groups := make([]time.Time, n), make([]atomic.Int64, n), make([]atomic.Int32, n)
	tally := newTally(n * len(eventGroups))
	start := time.Now()
	handled := func(id string) {
		if i, ok := index[id]; ok && groups[i].Add(1) == int32(len(eventGroups)) {
			report[i].Store(int64(time.Since(start)))
		}
		tally.add(1)
	}
	err := r.while(ctx, side, handled, func() error {
		for i, tick := 0, 0; i < n; tick++ {
			time.Sleep(time.Until(start.Add(time.Duration(tick) * every)))
			due := min(n, int(rate*(every.Seconds()*float64(tick+1))))
			for batch := range slices.Chunk(all[i:due], r.batch) {
				if err := r.Write(ctx, batch); err != nil {
					return err
				}
				now := time.Now()
				for range batch {
					committed[i] = now
					i++
				}
			}
		}
		return tally.wait(ctx)
	})
	if err != nil {
		return nil, err
	}
	waits := make([]float64, n)
	for i := range waits {
		waits[i] = max(0, float64(time.Duration(report[i].Load())-committed[i].Sub(start))/1e6)
	}
	return waits, nil
}
