package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/internal/loop"
	"sluice/test/testenv"
)

// scaleRun is the result of one sale over some masters in one round.
type scaleRun struct {
	rate      float64 // accepted orders per second
	cpu       float64 // microseconds of the masters' processor time per accepted order
	calls     float64 // commands of the busiest master per accepted order
	throttled float64 // share of the time slices in which a master used up its share, on average
	client    float64 // cores that this process used: buyers, admission, refill
}

// scale measures one sale over several masters, each limited to the same share of a processor core. If masters are the
// limit, n masters accept n times the orders of one.
func scale(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	list := flags.String("masters", "1,2,4,8", "numbers of masters, each also the spread of the sale")
	share := flags.Float64("share", 4, "percent of a core that each master gets")
	rounds := flags.Int("rounds", 3, "rounds")
	seconds := flags.Int("seconds", 5, "seconds of each measurement")
	hands := flags.Int("buyers", 48, "purchases in progress per master")
	if err := parse(flags, args); err != nil {
		return err
	}
	numbers, err := numbersIn("--masters", *list, 1, sale.MaxSpread)
	if err != nil {
		return err
	}
	if *share <= 0 || *share > 100 {
		return fmt.Errorf("--share %g: want 0 to 100", *share)
	}
	b := &scaleBench{stage: s, seconds: time.Duration(*seconds) * time.Second, hands: *hands}
	if err := b.start(ctx, slices.Max(numbers), *share); err != nil {
		return err
	}
	runs := map[int][]scaleRun{}
	for round := range *rounds {
		for _, n := range numbers {
			r, err := b.sell(ctx, n, fmt.Sprintf("sale-%d-%d", round, n))
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %d masters accept %.0f orders/s\n", round+1, *rounds, n, r.rate)
			runs[n] = append(runs[n], r)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "masters\taccepted/s\tof n times one\trange\tus of Redis per order\t",
		"commands of one master per order\tmasters at their limit\tcores of the client\t\n")
	for _, n := range numbers {
		var ratios []float64
		each := func(of func(scaleRun) float64) float64 { return median(values(runs[n], of)) }
		for i, r := range runs[n] {
			ratios = append(ratios, r.rate/(runs[numbers[0]][i].rate*float64(n)/float64(numbers[0])))
		}
		fmt.Fprintf(t, "%d\t%.0f\t%.2f\t%.2f..%.2f\t%.1f\t%.3f\t%.0f%%\t%.2f\t\n", n,
			each(func(r scaleRun) float64 { return r.rate }), median(ratios), slices.Min(ratios), slices.Max(ratios),
			each(func(r scaleRun) float64 { return r.cpu }), each(func(r scaleRun) float64 { return r.calls }),
			100*each(func(r scaleRun) float64 { return r.throttled }), each(func(r scaleRun) float64 { return r.client }))
	}
	return t.Flush()
}

// scaleBench holds the servers of all runs.
type scaleBench struct {
	*stage
	seconds time.Duration
	hands   int
	servers []redisconn.Client
	pids    []int
	groups  []cpuGroup
	db      *store.Store
}

func (b *scaleBench) start(ctx context.Context, masters int, share float64) error {
	for i := range masters {
		g, err := newCPUGroup(fmt.Sprintf("sluice-bench-%d-%d", os.Getpid(), i), share/100)
		if err != nil {
			return err
		}
		b.Cleanup(g.remove) // after the server has stopped
		client := testenv.StartRedis(b.stage, "--appendonly", "yes", "--appendfsync", "everysec").Client()
		pid := redisPID(b.stage, client)
		if err := g.add(pid); err != nil {
			return err
		}
		b.servers, b.pids, b.groups = append(b.servers, client), append(b.pids, pid), append(b.groups, g)
	}
	db, err := store.Open(ctx, "sqlite:"+filepath.Join(b.TempDir(), "orders.db"), store.Config{})
	if err != nil {
		return err
	}
	b.Cleanup(func() { _ = db.Close() })
	b.db = store.New(db)
	return nil
}

// sell sells one sale over the first n masters.
func (b *scaleBench) sell(ctx context.Context, n int, id string) (r scaleRun, err error) {
	servers, space := b.servers[:n], keyspace.Space{Shards: n}
	for _, c := range servers {
		if err := c.FlushAll(ctx).Err(); err != nil {
			return r, err
		}
	}
	pick := func(key string) int { shard, _ := keyspace.ShardOfKey(key); return int(shard) }
	client := redisconn.Route(func(key string) redisconn.Client { return servers[pick(key)] })
	defer client.Close()
	pipes := make([]*redisconn.Pipeline, n)
	for i, c := range servers {
		if pipes[i], err = redisconn.NewPipeline(c); err != nil {
			return r, err
		}
	}
	const stock = 50_000_000
	def := benchSale(stock)
	def.ID, def.Spread = id, n
	if def, err = b.db.CreateSale(ctx, def); err != nil {
		return r, err
	}
	loader := admission.NewStock(admission.StockConfig{
		Client: client, Space: space, Claimer: b.db,
		Server: func(shard keyspace.Shard) redisconn.Client { return servers[shard] },
	})
	if err := loader.Load(ctx, def, b.db.OrdersOf); err != nil {
		return r, err
	}
	refillers := spread.NewRefillers(spread.NewMover(admission.NewSegments(client, space, nil), b.db))
	admit, err := admission.NewAdmitter(admission.Config{
		Client: redisconn.NewPipelines(client, func(key string) *redisconn.Pipeline { return pipes[pick(key)] }),
		Space:  space, IDs: admission.NewSequencer(client, space, time.Now), MaxReady: stock,
		Refillers: refillers,
	})
	if err != nil {
		return r, err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var buyers sync.WaitGroup
	var next, accepted atomic.Int64
	var failure atomic.Pointer[error]
	for range b.hands * n {
		buyers.Go(func() {
			for ctx.Err() == nil {
				d, err := admit.Admit(ctx, admission.Request{
					SaleID: id, Spread: def.Spread, Buyer: buyerName(int(next.Add(1))), Key: "k", KeyTTL: time.Minute,
					Fingerprint: "f",
				})
				switch {
				case ctx.Err() != nil:
				case err == nil && d.Outcome == sale.Accepted:
					accepted.Add(1)
				default:
					err = fmt.Errorf("a purchase returns %s: %w", d.Outcome, err)
					failure.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	if n > 1 {
		buyers.Go(func() {
			for ctx.Err() == nil {
				_ = refillers.Of(spread.Sale{ID: id, Spread: n}).RunOnce(ctx)
				loop.Sleep(ctx, 200*time.Millisecond)
			}
		})
	}
	loop.Sleep(ctx, time.Second) // opens connections and loads scripts
	before, idle, err := b.counters(ctx, n)
	if err != nil {
		return r, err
	}
	sold, began := accepted.Load(), time.Now()
	loop.Sleep(ctx, b.seconds)
	elapsed, orders := time.Since(began).Seconds(), float64(accepted.Load()-sold)
	after, busy, err := b.counters(ctx, n)
	stop()
	buyers.Wait()
	if f := failure.Load(); f != nil {
		return r, *f
	}
	if err != nil {
		return r, err
	}
	r.rate, r.client = orders/elapsed, (busy-idle).Seconds()/elapsed
	for i, then := range before {
		now := after[i]
		r.cpu += float64((now.cpu - then.cpu).Microseconds()) / orders
		r.calls = max(r.calls, (now.calls-then.calls)/orders)
		r.throttled += float64(now.throttled-then.throttled) / float64(max(now.periods-then.periods, 1)) / float64(n)
	}
	return r, nil
}

// scaleCounters are the counters of a master.
type scaleCounters struct {
	cpu                time.Duration
	calls              float64
	periods, throttled int64
}

// counters returns the counters of the first n masters, and the processor time of this process.
func (b *scaleBench) counters(ctx context.Context, n int) (all []scaleCounters, client time.Duration, err error) {
	for i := range n {
		c := scaleCounters{cpu: cpuOf(b.pids[i]).sum()}
		if c.calls, err = redisNumber(ctx, b.servers[i], "stats", "total_commands_processed"); err != nil {
			return nil, 0, err
		}
		if c.periods, c.throttled, err = b.groups[i].periods(); err != nil {
			return nil, 0, err
		}
		all = append(all, c)
	}
	var own syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	return all, time.Duration(own.Utime.Nano() + own.Stime.Nano()), err
}
