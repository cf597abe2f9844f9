package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/internal/plot"
)

const (
	tenthCount   = 10
	growthGoal   = 0.10                   // of the processor time per order, from the first tenth to the last
	sampleEvery  = 200 * time.Millisecond // while a sale is measured
	stallLimit   = time.Minute            // without an accepted order
	replayWindow = 2 * time.Minute        // lifetime of the replay key of a purchase without an Idempotency-Key
)

// million measures one sale of many units, each sold to another buyer at full speed: how much processor time an order
// takes in each tenth of the sale, and what it leaves in Redis and PostgreSQL.
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
	m := &bigSale{costHouse: newCostHouse(s, settings{}, of, s.build()), units: *units}
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

// tableSize is what one table takes in PostgreSQL. Sizes are in bytes.
type tableSize struct {
	table, indexes      float64
	live, dead          int64
	vacuums, analyzings int64 // by autovacuum
}

// saleTables are the tables that an order writes to.
var saleTables = []string{"orders", "outbox", "sales"}

// bigSale is one measured sale.
type bigSale struct {
	*costHouse

	units   int
	samples []saleSample // the last one: the last unit was accepted
	settled saleSample   // every order is a row
	load    outcome

	entry, buyer  float64 // bytes in Redis of an order in the queue, and of a buyer with an order
	before, after map[string]tableSize
	wal           float64 // bytes
	rewrites      int64   // of the log of Redis
}

// measure sells a small sale to warm up and to weigh orders in the queue, and then the measured one.
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
	buyers, err := m.client.MemoryUsage(ctx, keyspace.Shard(0).Buyers(id), 0).Result()
	if err != nil {
		return err
	}
	m.buyer = float64(buyers) / float64(m.units)
	info, err := m.client.InfoMap(ctx, "persistence").Result()
	if err != nil {
		return err
	}
	m.rewrites, err = strconv.ParseInt(info["Persistence"]["aof_rewrites"], 10, 64)
	return err
}

// warmUp sells units while the worker is stopped, weighs the orders in the queue, and waits until they are rows.
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

// sellOut sells a sale of n units to as many new buyers as fast as the answers come. It returns a sample for each
// moment from the first purchase until the last unit is accepted.
//
// More buyers come than there are units: the load generator reports how many were answered and not when the last unit
// was sold, and it must not run out of requests before that.
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
	load, err := m.wrk.begin(ctx, m.edge.addr, requests)
	if err != nil {
		return nil, outcome{}, err
	}
	samples, err := m.follow(ctx, id, n, begin, start, load)
	got, loadErr := load.end()
	return samples, got, errors.Join(err, loadErr)
}

// follow samples a sale until its last unit is accepted.
func (m *bigSale) follow(
	ctx context.Context, id string, n int, begin time.Time, first saleSample, load *openLoad,
) ([]saleSample, error) {
	samples := []saleSample{first}
	printed, progress := first, begin
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-load.done:
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
	memory, _, err := used(ctx, m.client)
	if err != nil {
		return s, err
	}
	ready, err := m.client.LLen(ctx, shard.Ready()).Result()
	s.memory, s.waiting = float64(memory), float64(ready)
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

// openLoad is a running load generator.
type openLoad struct {
	cmd  *exec.Cmd
	out  *strings.Builder
	done chan struct{} // closed when the process has ended
	err  error         // of the process; valid when done is closed
}

// begin sends the requests of a file until end, each once and in their order, and then from the first one again. The
// file is read while it is sent.
func (w *wrk) begin(ctx context.Context, addr, requests string) (*openLoad, error) {
	l := &openLoad{out: &strings.Builder{}, done: make(chan struct{})}
	l.cmd = exec.CommandContext(ctx, w.bin, "-t1", fmt.Sprintf("-c%d", w.connections), "-d24h", "--timeout", "10s",
		"-s", w.script, "http://"+addr+"/", "--", requests, "stream")
	l.cmd.Stdout, l.cmd.Stderr = l.out, l.out
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("wrk: %w", err)
	}
	go func() { l.err = l.cmd.Wait(); close(l.done) }()
	return l, nil
}

// end stops the load generator and returns what it saw.
func (l *openLoad) end() (outcome, error) {
	_ = l.cmd.Process.Signal(os.Interrupt) // wrk then prints its results
	<-l.done
	if l.err != nil {
		return outcome{}, fmt.Errorf("wrk: %w\n%s", l.err, l.out)
	}
	o, err := parseOutcome(l.out.String())
	if errors.Is(err, errTooFew) { // repeated requests of buyers with an order take no unit
		err = nil
	}
	return o, err
}

// tenth is what one tenth of the orders of a sale took.
type tenth struct {
	perSecond float64
	cpu       []float64 // µs per order, by costParts
}

func (t tenth) sum() float64 {
	total := 0.0
	for _, part := range t.cpu {
		total += part
	}
	return total
}

// tenthsOf divides a sale by its accepted orders. Values between two samples are interpolated. What the parts do after
// the last order was accepted, until all are rows, belongs to the last tenth.
func tenthsOf(samples []saleSample, settled saleSample) []tenth {
	first, last := samples[0], samples[len(samples)-1]
	each := (last.accepted - first.accepted) / tenthCount
	from := first
	tenths := make([]tenth, tenthCount)
	for i := range tenths {
		to := whenAccepted(samples, first.accepted+each*float64(i+1))
		tenths[i].perSecond = each / (to.at - from.at)
		end := to
		if i == tenthCount-1 {
			end = settled
		}
		for part := range first.cpu {
			tenths[i].cpu = append(tenths[i].cpu, (end.cpu[part]-from.cpu[part])/each)
		}
		from = to
	}
	return tenths
}

// whenAccepted returns the state in which a number of orders was accepted, between the samples around it.
func whenAccepted(samples []saleSample, accepted float64) saleSample {
	for i, s := range samples {
		if s.accepted < accepted || i == 0 {
			continue
		}
		before := samples[i-1]
		part := (accepted - before.accepted) / (s.accepted - before.accepted)
		between := func(a, b float64) float64 { return a + part*(b-a) }
		r := saleSample{at: between(before.at, s.at), accepted: accepted}
		for k := range s.cpu {
			r.cpu = append(r.cpu, between(before.cpu[k], s.cpu[k]))
		}
		return r
	}
	return samples[len(samples)-1]
}

// growth returns by which part values grow from the first to the last, on a straight line through all of them. The line
// is the one of Theil and Sen: its slope is the median of the slopes between all pairs, so that a few values far from
// the others hardly change it.
func growth(values []float64) float64 {
	var slopes, heights []float64
	for i, a := range values {
		for k := i + 1; k < len(values); k++ {
			slopes = append(slopes, (values[k]-a)/float64(k-i))
		}
	}
	slope := median(slopes)
	for i, v := range values {
		heights = append(heights, v-slope*float64(i))
	}
	start := median(heights)
	if start == 0 {
		return 0
	}
	return slope * float64(len(values)-1) / start
}

// rowMemory returns the bytes that Redis holds for an order that is a row, while its replay key lives. It uses the last
// sample in which no replay key has expired, neither of this sale nor of the one before it.
func rowMemory(samples []saleSample, settled saleSample, entry float64) float64 {
	first, at := samples[0], samples[0]
	for _, s := range append(samples[1:len(samples):len(samples)], settled) {
		if s.at < (replayWindow * 3 / 4).Seconds() {
			at = s
		}
	}
	return (at.memory - first.memory - entry*at.waiting) / math.Max(at.accepted-first.accepted, 1)
}

// print writes the report as Markdown.
func (m *bigSale) print(w io.Writer) {
	n := float64(m.units)
	last := m.samples[len(m.samples)-1]
	fmt.Fprintf(w, "%s units sold to as many buyers in %.1f s: %s orders/s; answers p50 %.1f ms, p99 %.1f ms; "+
		"%d connections; all orders were rows %.1f s after the last was accepted.\n\n", number(n), last.at,
		number(n/last.at), m.load.p50.Seconds()*1e3, m.load.p99.Seconds()*1e3, m.wrk.connections, m.settled.at-last.at)
	tenths := tenthsOf(m.samples, m.settled)
	fmt.Fprintf(w, "| tenth | accepted/s | %s | sum |\n|%s\n", strings.Join(costParts, " | "),
		strings.Repeat(" --- |", len(costParts)+3))
	row := func(name, rate string, cells []string) {
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, rate, strings.Join(cells, " | "))
	}
	for i, t := range tenths {
		var cells []string
		for _, part := range append(t.cpu[:len(t.cpu):len(t.cpu)], t.sum()) {
			cells = append(cells, fmt.Sprintf("%.1f", part))
		}
		row(strconv.Itoa(i+1), number(t.perSecond), cells)
	}
	grows := func(of func(tenth) float64) float64 {
		var values []float64
		for _, t := range tenths {
			values = append(values, of(t))
		}
		return growth(values)
	}
	var cells []string
	for part := range costParts {
		cells = append(cells, fmt.Sprintf("%+.0f%%", 100*grows(func(t tenth) float64 { return t.cpu[part] })))
	}
	total := grows(tenth.sum)
	row("growth", fmt.Sprintf("%+.0f%%", 100*grows(func(t tenth) float64 { return t.perSecond })),
		append(cells, fmt.Sprintf("**%+.1f%%**", 100*total)))
	verdict := "reached"
	if total > growthGoal {
		verdict = "missed"
	}
	fmt.Fprintf(w, "\nProcessor time is in µs per order. Goal: it grows by at most %.0f%% from the first tenth to the "+
		"last, on a straight line through the tenths: %s.\n\n", 100*growthGoal, verdict)

	row3 := func(name string, bytes float64) { fmt.Fprintf(w, "| %s | %.0f |\n", name, bytes) }
	stored := rowMemory(m.samples, m.settled, m.entry)
	grown := func(name string, of func(tableSize) float64) float64 {
		return (of(m.after[name]) - of(m.before[name])) / n
	}
	table, indexes := func(t tableSize) float64 { return t.table }, func(t tableSize) float64 { return t.indexes }
	fmt.Fprint(w, "| per order | bytes |\n| --- | --- |\n")
	row3("Redis, while it waits", stored+m.entry)
	row3("Redis, when it is a row", stored)
	row3("Redis, when its replay key has expired (2 minutes)", m.buyer)
	row3("PostgreSQL, table `orders`", grown("orders", table))
	row3("PostgreSQL, indexes of `orders`", grown("orders", indexes))
	row3("PostgreSQL, `outbox` with indexes", grown("outbox", table)+grown("outbox", indexes))
	row3("PostgreSQL, log (WAL)", m.wal/n)
	fmt.Fprintf(w, "\nRedis rewrote its log %d times.\n\n", m.rewrites)

	fmt.Fprint(w, "| table | rows | dead rows | autovacuum runs | autoanalyze runs |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range saleTables {
		t := m.after[name]
		fmt.Fprintf(w, "| `%s` | %s | %s | %d | %d |\n", name, number(float64(t.live)), number(float64(t.dead)),
			t.vacuums, t.analyzings)
	}
}

// drawSale draws accepted orders per second over the time of a sale as an SVG file.
func drawSale(samples []saleSample) string {
	last := samples[len(samples)-1]
	line := plot.Series{Name: "accepted", Class: "accepted"}
	step := min(1, last.at/20) // seconds
	for from := samples[0]; ; {
		to := stateAt(samples, from.at+step)
		if to.at <= from.at {
			break
		}
		line.X = append(line.X, (from.at+to.at)/2)
		line.Y = append(line.Y, (to.accepted-from.accepted)/(to.at-from.at))
		from = to
	}
	return plot.Plot{
		Label:  fmt.Sprintf("Accepted orders per second in a sale of %s units", number(last.accepted)),
		Series: []plot.Series{line},
	}.File()
}

// stateAt returns the orders accepted at an instant, between the samples around it, or the last sample.
func stateAt(samples []saleSample, at float64) saleSample {
	for i, s := range samples {
		if s.at < at || i == 0 {
			continue
		}
		before := samples[i-1]
		part := (at - before.at) / (s.at - before.at)
		return saleSample{at: at, accepted: before.accepted + part*(s.accepted-before.accepted)}
	}
	return samples[len(samples)-1]
}
