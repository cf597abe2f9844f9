package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

const (
	tenthCount  = 10
	growthGoal  = 0.10                   // of the processor time per order, from the first tenth to the last
	sampleEvery = 200 * time.Millisecond // while a sale is measured
	stallLimit  = time.Minute            // without an accepted order
)

// million measures one sale of many units, each sold to another buyer at full speed: the processor time of an order in
// each tenth of the sale, and the data that it leaves in Redis and PostgreSQL.
func million(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("million", flag.ContinueOnError)
	units := flags.Int("units", 1_000_000, "units of the sale, and buyers; at least 1000")
	conns := flags.Int("connections", 64, "connections of the load generator, at most 4000")
	out := flags.String("out", "", "SVG file for accepted orders per second over time (default: none)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *units < 1000 || *conns > 4000 {
		return usageError("--units must be at least 1000, --connections at most 4000")
	}
	var drawing *os.File // opened first, so that a bad path fails before the measurement
	if *out != "" {
		var err error
		if drawing, err = os.Create(*out); err != nil {
			return usageError(fmt.Sprintf("--out: %v", err))
		}
		defer drawing.Close()
	}
	of := costCase{of: "order", edge: "nginx", fsync: "everysec", tokens: "new", connections: *conns}
	m := &bigSale{costDeployment: newCostDeployment(s, settings{}, of, s.build()), units: *units}
	if err := m.measure(ctx); err != nil {
		return err
	}
	m.print(os.Stdout)
	if drawing == nil {
		return nil
	}
	_, err := drawing.WriteString(drawSale(m.samples))
	return errors.Join(err, drawing.Close())
}

// saleSample is the state of a sale at an instant.
type saleSample struct {
	at       float64   // seconds since the first purchase
	accepted float64   // orders
	cpu      []float64 // µs so far, by costParts
	memory   float64   // bytes used by Redis
	waiting  float64   // orders in the queue
}

// tableSize is the size of one table in PostgreSQL, in bytes.
type tableSize struct {
	table, indexes      float64
	live, dead          int64
	vacuums, analyzings int64 // by autovacuum
}

// saleTables are the tables that an order writes to.
var saleTables = []string{"orders", "outbox", "sales"}

// bigSale is one measured sale.
type bigSale struct {
	*costDeployment

	units   int
	samples []saleSample // the last one: the last unit was accepted
	settled saleSample   // every order is a row
	load    outcome

	entry         float64 // bytes in Redis of an order in the queue
	before, after map[string]tableSize
	wal           float64 // bytes
	rewrites      float64 // of the log of Redis
}

// measure sells a small sale to warm up and to measure the size of queued orders, and then the main sale.
func (m *bigSale) measure(ctx context.Context) error {
	if err := m.warmUp(ctx); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	sizes, err := m.sizes(ctx)
	if err != nil {
		return err
	}
	if m.before, err = m.tables(ctx); err != nil {
		return err
	}
	id := saleID + "-million"
	if m.samples, m.load, err = m.sellOut(ctx, id, m.units); err != nil {
		return err
	}
	if _, err := m.written(ctx); err != nil {
		return err
	}
	last := m.samples[len(m.samples)-1]
	if m.settled, err = m.sample(ctx, id, time.Now().Add(-time.Duration(last.at*float64(time.Second)))); err != nil {
		return err
	}
	if err := m.sluice(ctx, m.at, "sale", "audit", id); err != nil {
		return err
	}
	after, err := m.sizes(ctx)
	if err != nil {
		return err
	}
	m.wal = after[2] - sizes[2]
	if m.after, err = m.tables(ctx); err != nil {
		return err
	}
	m.rewrites, err = redisNumber(ctx, m.client, "persistence", "aof_rewrites")
	return err
}

// warmUp sells units while the worker is stopped, measures the size of the queued orders, and waits until they are
// rows.
func (m *bigSale) warmUp(ctx context.Context) error {
	n := min(20_000, m.units)
	m.worker.Signal(syscall.SIGSTOP)
	m.stage.Cleanup(func() { m.worker.Signal(syscall.SIGCONT) }) // a stopped process cannot exit
	if _, _, err := m.sellOut(ctx, saleID+"-warm-up", n); err != nil {
		return err
	}
	ready := keyspace.Shard(0).Ready()
	waiting, err := m.client.LLen(ctx, ready).Result()
	if err != nil {
		return err
	}
	bytes, err := m.client.MemoryUsage(ctx, ready, 0).Result()
	if err != nil {
		return err
	}
	m.entry = float64(bytes) / float64(max(waiting, 1))
	m.worker.Signal(syscall.SIGCONT)
	_, err = m.written(ctx)
	return err
}

// sellOut sells a sale of n units to as many new buyers as fast as the responses arrive. It returns samples from the
// first purchase until the last unit is accepted.
//
// It sends more purchases than there are units: the load generator does not report when the last unit was sold, and it
// must not run out of requests before that.
func (m *bigSale) sellOut(ctx context.Context, id string, n int) ([]saleSample, outcome, error) {
	requests := filepath.Join(m.wrk.dir, "requests")
	first, crowd := m.buyers, n+n/20+20*m.wrk.connections
	m.buyers += crowd
	fmt.Fprintf(os.Stderr, "%s: preparing %s purchases\n", id, number(float64(crowd)))
	if err := writeRequests(requests, crowd, func(b []byte, i int) []byte {
		return buyRequest(b, id, "", first+i)
	}); err != nil {
		return nil, outcome{}, err
	}
	defer os.Remove(requests)
	if err := m.createSale(ctx, m.at, id, n, "-1s"); err != nil {
		return nil, outcome{}, err
	}
	begin := time.Now()
	start, err := m.sample(ctx, id, begin)
	if err != nil {
		return nil, outcome{}, err
	}
	// The requests are sent from the file, each once and in their order, and then from the first one again.
	load := m.stage.start(nil, m.wrk.bin, m.wrk.arguments(m.edge.addr, "-d24h", requests, "stream")...)
	samples, err := m.follow(ctx, id, n, begin, start, load)
	load.End(syscall.SIGINT) // wrk then prints its results
	got, loadErr := parseOutcome(load.Output())
	if errors.Is(loadErr, errTooFew) { // repeated requests of buyers with an order take no unit
		loadErr = nil
	}
	return samples, got, errors.Join(err, loadErr)
}

// follow samples a sale until its last unit is accepted.
func (m *bigSale) follow(
	ctx context.Context, id string, n int, begin time.Time, first saleSample, load *testenv.Program,
) ([]saleSample, error) {
	samples := []saleSample{first}
	printed, progress := first, begin
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-load.Done():
			return nil, errors.New("the load generator ended before the sale")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s, err := m.sample(ctx, id, begin)
		if err != nil {
			return nil, err
		}
		if s.accepted > samples[len(samples)-1].accepted {
			progress = time.Now()
		}
		samples = append(samples, s)
		if done := s.accepted == float64(n); done || s.at-printed.at >= 5 {
			fmt.Fprintf(os.Stderr, "%s: %5.1f s  %s of %s accepted, %s/s, %s in the queue\n", id, s.at, number(s.accepted),
				number(float64(n)), number((s.accepted-printed.accepted)/(s.at-printed.at)), number(s.waiting))
			printed = s
			if done {
				return samples, nil
			}
		}
		if time.Since(progress) > stallLimit {
			return nil, fmt.Errorf("%s of %s units are sold and no order was accepted for %v", number(s.accepted),
				number(float64(n)), stallLimit)
		}
	}
}

// sample reads the state of a sale that began at an instant.
func (m *bigSale) sample(ctx context.Context, id string, begin time.Time) (s saleSample, err error) {
	shard := keyspace.Shard(0)
	accepted, err := m.client.HGet(ctx, shard.Sale(id), "accepted").Int64()
	if err != nil {
		return s, fmt.Errorf("accepted orders of %s: %w", id, err)
	}
	s.at, s.accepted = time.Since(begin).Seconds(), float64(accepted)
	for _, part := range m.parts.read() {
		s.cpu = append(s.cpu, micros(part.sum(), 1))
	}
	if s.memory, err = redisNumber(ctx, m.client, "memory", "used_memory"); err != nil {
		return s, err
	}
	ready, err := m.client.LLen(ctx, shard.Ready()).Result()
	s.waiting = float64(ready)
	return s, err
}

// tables returns the sizes of saleTables.
func (m *bigSale) tables(ctx context.Context) (map[string]tableSize, error) {
	sizes := map[string]tableSize{}
	for _, name := range saleTables {
		var t tableSize
		err := m.sql.QueryRow(ctx, "SELECT pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup, "+
			"autovacuum_count, autoanalyze_count FROM pg_stat_user_tables WHERE relname = $1", name).
			Scan(&t.table, &t.indexes, &t.live, &t.dead, &t.vacuums, &t.analyzings)
		if err != nil {
			return nil, fmt.Errorf("size of %s: %w", name, err)
		}
		sizes[name] = t
	}
	return sizes, nil
}
