package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// costCase is one table of `bench cost`.
type costCase struct {
	of          string // order, status, page or refusal
	edge        string // nginx or gateway
	fsync       string // appendfsync of Redis
	tokens      string // of orders: new, or repeated
	connections int
}

func (c costCase) String() string {
	s := fmt.Sprintf("%s through %s, %d connections, appendfsync %s", c.of, c.edge, c.connections, c.fsync)
	if c.of == "order" {
		s += ", " + c.tokens + " tokens"
	}
	return s
}

// cost measures the processor time of each part per answer, until the orders are rows, beside a constant answer behind
// a plain nginx and beside another version of sluice.
func cost(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	of := flags.String("of", "order", "comma-separated: order, status, page, refusal")
	edges := flags.String("edge", "nginx", "comma-separated: nginx, gateway")
	conns := flags.String("connections", "64", "comma-separated numbers of connections")
	fsync := flags.String("fsync", "everysec", "comma-separated appendfsync of Redis: no, everysec, always")
	tokens := flags.String("tokens", "new", "comma-separated: new (each order with another token), repeated")
	against := flags.String("against", "", "root of another working tree of sluice, measured in the same rounds")
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 3, "seconds of load for each side of a round")
	profile := flags.String("profile", "", "file for the CPU profile of sluice's backend while it sells; it costs time")
	if err := parse(flags, args); err != nil {
		return err
	}
	cases, err := costCases(*of, *edges, *fsync, *tokens, *conns)
	if err != nil {
		return err
	}
	bins := map[string]string{"sluice": s.build()}
	if *against != "" {
		root, err := filepath.Abs(*against)
		if err != nil {
			return err
		}
		bins["against"] = s.buildOf(root)
	}
	scene := newStage() // of one case; the programs outlive it
	s.Cleanup(scene.clear)
	cfg := settings{rounds: *rounds, seconds: time.Duration(*seconds * float64(time.Second)), profile: *profile}
	for _, c := range cases {
		var sides []*costSide
		sides = append(sides, newCostHouse(scene, cfg, c, bins["sluice"], noRewrites...).side("sluice"))
		if bin := bins["against"]; bin != "" {
			other := cfg
			other.profile = ""
			sides = append(sides, newCostHouse(scene, other, c, bin, noRewrites...).side("against"))
		}
		sides = append(sides, helloSide(scene, cfg, c))
		err := interleave(ctx, cfg.rounds, len(sides), func(round, i int) error {
			got, err := sides[i].run(ctx)
			if err != nil {
				return fmt.Errorf("%v: %s: %w", c, sides[i].name, err)
			}
			if round > 0 {
				sides[i].samples = append(sides[i].samples, got)
			}
			return nil
		})
		scene.clear()
		if err != nil {
			return err
		}
		printCost(os.Stdout, c, sides)
	}
	return nil
}

// costCases returns every combination of the choices. Tokens matter for orders only.
func costCases(of, edges, fsync, tokens, conns string) (cases []costCase, err error) {
	var errs []error
	choice := func(name, given string, all ...string) []string {
		some, err := among(name, given, all)
		errs = append(errs, err)
		return some
	}
	things := choice("--of", of, "order", "status", "page", "refusal")
	fronts := choice("--edge", edges, "nginx", "gateway")
	syncs := choice("--fsync", fsync, "no", "everysec", "always")
	credentials := choice("--tokens", tokens, "new", "repeated")
	var numbers []int
	for text := range strings.SplitSeq(conns, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 4000 {
			errs = append(errs, usageError(fmt.Sprintf("--connections %q: want numbers from 1 to 4000", conns)))
		}
		numbers = append(numbers, n)
	}
	for _, of := range things {
		for _, edge := range fronts {
			for _, sync := range syncs {
				for _, n := range numbers {
					for i, t := range credentials {
						if of == "order" || i == 0 {
							cases = append(cases, costCase{of, edge, sync, t, n})
						}
					}
				}
			}
		}
	}
	return cases, errors.Join(errs...)
}

// costParts are the processes, in the order of the meters.
var costParts = []string{"edge", "backend", "Redis", "worker", "PostgreSQL"}

// costSide is one side of a case with its samples.
type costSide struct {
	name    string
	run     func(context.Context) (costSample, error)
	samples []costSample
}

// costSample is one round of one side. Times are in microseconds for each answer.
type costSample struct {
	perSecond    float64
	user, kernel []float64 // by part; a constant answer has the first two
	sizes        []float64 // bytes for each order, by costSizes; nil: not measured
}

var costSizes = []string{"AOF", "Redis memory", "WAL", "database"}

func (c costSample) sum() float64 {
	total := 0.0
	for i := range c.user {
		total += c.user[i] + c.kernel[i]
	}
	return total
}

func newCostSample(perSecond float64, before, after []spent, n int64) costSample {
	c := costSample{perSecond: perSecond}
	for i := range after {
		c.user = append(c.user, micros(after[i].user-before[i].user, n))
		c.kernel = append(c.kernel, micros(after[i].kernel-before[i].kernel, n))
	}
	return c
}

// helloSide measures a constant answer of Fiber behind nginx without Lua, with the requests of the case.
func helloSide(s *stage, cfg settings, c costCase) *costSide {
	w := s.wrk()
	w.connections = c.connections
	proxy, hello := s.plainHello()
	parts := newMeter("edge", proxy.pid, "backend", hello.pid)
	requests := filepath.Join(w.dir, "hello")
	s.check(writeRequests(requests, 50_000, func(b []byte, i int) []byte {
		if c.of == "page" {
			return opening(b, i)
		}
		return buyRequest(b, saleID, "", i)
	}))
	return &costSide{name: "hello", run: func(ctx context.Context) (costSample, error) {
		before := parts.read()
		got, err := w.load(ctx, proxy.addr, requests, cfg.seconds, parts)
		if err != nil && !errors.Is(err, errTooFew) {
			return costSample{}, err
		}
		return newCostSample(got.perSecond, before, parts.read(), got.answers), nil
	}}
}

// costHouse is a house whose stores write to disk, with a connection to its database.
type costHouse struct {
	*house

	of     costCase
	sql    *pgx.Conn
	worker *testenv.Program
	buyers int // so far; each has a token of its own
}

// noRewrites are arguments of a redis-server that only appends to its log, so that its growth can be measured.
var noRewrites = []string{"--auto-aof-rewrite-percentage", "0"}

// newCostHouse starts the parts as in production: Redis with its log, a backend with its journal, an edge. redisArgs are
// further arguments of Redis.
func newCostHouse(s *stage, cfg settings, c costCase, bin string, redisArgs ...string) *costHouse {
	shop := newShopOf(s, bin, append([]string{"--appendonly", "yes", "--appendfsync", c.fsync}, redisArgs...)...)
	h := &house{shop: shop, cfg: cfg, wrk: s.wrk(), client: shop.redis.Client()}
	h.wrk.connections = c.connections
	h.at = h.backend("--journal", s.TempDir())
	worker := s.start(h.env, bin, "worker")
	if c.edge == "gateway" {
		h.edge = s.gateway(bin, h.env, h.at.addr, "")
	} else {
		h.edge = s.edge(bin, h.env, h.at.addr)
	}
	h.parts = newMeter(costParts[0], h.edge.pid, costParts[1], h.at.pid, costParts[2], redisPID(s, h.client),
		costParts[3], worker.Pid(), costParts[4], shop.sql.Pid())
	sql, err := pgx.Connect(context.Background(), shop.sql.URL)
	s.check(err)
	s.Cleanup(func() { _ = sql.Close(context.Background()) })
	return &costHouse{house: h, of: c, sql: sql, worker: worker}
}

func (h *costHouse) side(name string) *costSide {
	side := &costSide{name: name}
	switch h.of.of {
	case "order":
		side.run = h.orders()
	case "status":
		side.run = h.statuses
	case "page":
		side.run = h.pages
	case "refusal":
		side.run = h.refusals
	}
	return side
}

const (
	// repeatedBuyers fit the cache of verified tokens of an nginx worker (lua/edge/sluice/token/cache.lua).
	repeatedBuyers = 9_000
	statusOrders   = 20_000
)

// orders buys with accepted purchases only.
func (h *costHouse) orders() func(context.Context) (costSample, error) {
	rate := 15_000.0
	return func(ctx context.Context) (costSample, error) {
		for {
			got, err := h.buy(ctx, int(rate*h.cfg.seconds.Seconds()*3/2)+10*h.wrk.connections)
			if !errors.Is(err, errTooFew) {
				rate = max(got.perSecond, 1000)
				return got, err
			}
			rate *= 1.5
		}
	}
}

// buy prepares n purchases and measures those that are sent, until the orders are rows.
func (h *costHouse) buy(ctx context.Context, n int) (costSample, error) {
	requests, err := h.purchases(ctx, n)
	if err != nil {
		return costSample{}, err
	}
	defer os.Remove(requests)
	sizes, err := h.sizes(ctx)
	if err != nil {
		return costSample{}, err
	}
	rows, err := h.rows(ctx)
	if err != nil {
		return costSample{}, err
	}
	before := h.parts.read()
	profiled := make(chan error, 1)
	go func() {
		if h.cfg.profile == "" {
			profiled <- nil
			return
		}
		profiled <- addProfile(ctx, h.at.admin, h.cfg.profile, h.cfg.seconds)
	}()
	got, loadErr := h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
	if err := <-profiled; err != nil {
		return costSample{}, err
	}
	if loadErr != nil && !errors.Is(loadErr, errTooFew) {
		return costSample{}, loadErr
	}
	written, err := h.written(ctx)
	if err != nil || loadErr != nil {
		return costSample{}, errors.Join(loadErr, err)
	}
	c := newCostSample(got.perSecond, before, h.parts.read(), written-rows)
	if got.refused > 0 || written-rows < got.answers {
		return c, fmt.Errorf("%d answers, of them %d refusals, and %d orders", got.answers, got.refused, written-rows)
	}
	after, err := h.sizes(ctx)
	for i := range after {
		c.sizes = append(c.sizes, (after[i]-sizes[i])/float64(written-rows))
	}
	return c, err
}

// purchases writes n purchases and creates their sales. A buyer with a repeated token buys in one sale after another.
func (h *costHouse) purchases(ctx context.Context, n int) (path string, err error) {
	each, first := n, h.buyers
	if h.of.tokens == "repeated" {
		each = repeatedBuyers
	} else {
		h.buyers += n
	}
	sales := h.sales
	for range (n + each - 1) / each {
		if err := h.createSale(ctx, h.at, saleID+strconv.Itoa(h.sales), each, "-1s"); err != nil {
			return "", err
		}
		h.sales++
	}
	path = filepath.Join(h.wrk.dir, "requests")
	return path, writeRequests(path, n, func(b []byte, i int) []byte {
		return buyRequest(b, saleID+strconv.Itoa(sales+i/each), "", first+i%each)
	})
}

// rows returns the number of orders that are rows.
func (h *costHouse) rows(ctx context.Context) (n int64, err error) {
	err = h.sql.QueryRow(ctx, "SELECT coalesce(sum(sold), 0)::bigint FROM sales").Scan(&n)
	return n, err
}

// written waits until every accepted order is a row, and returns the number of rows.
func (h *costHouse) written(ctx context.Context) (int64, error) {
	for deadline := time.Now().Add(drainLimit); ; time.Sleep(20 * time.Millisecond) {
		counts, err := counters(ctx, h.at.admin, "sluice_api_purchases_total{outcome=")
		if err != nil {
			return 0, err
		}
		rows, err := h.rows(ctx)
		if err != nil || rows == counts["accepted"] {
			return rows, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d rows after %d accepted orders", rows, counts["accepted"])
		}
	}
}

// sizes returns what costSizes names, in bytes.
func (h *costHouse) sizes(ctx context.Context) ([]float64, error) {
	info, err := h.client.InfoMap(ctx, "memory", "persistence").Result()
	if err != nil {
		return nil, err
	}
	var sizes []float64
	for _, text := range []string{info["Persistence"]["aof_current_size"], info["Memory"]["used_memory"]} {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("redis reports a size of %q", text)
		}
		sizes = append(sizes, n)
	}
	var wal, database int64
	err = h.sql.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint, pg_database_size(current_database())").
		Scan(&wal, &database)
	return append(sizes, float64(wal), float64(database)), err
}

// answers measures requests that may be sent again. refused: each of them must be refused, otherwise none.
func (h *costHouse) answers(ctx context.Context, requests string, refused bool) (costSample, error) {
	before := h.parts.read()
	got, err := h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
	if err != nil && !errors.Is(err, errTooFew) {
		return costSample{}, err
	}
	if want := map[bool]int64{true: got.answers}[refused]; got.refused != want {
		return costSample{}, fmt.Errorf("%d of %d answers are refusals, want %d", got.refused, got.answers, want)
	}
	return newCostSample(got.perSecond, before, h.parts.read(), got.answers), nil
}

// statuses queries orders that are rows, each by its buyer.
func (h *costHouse) statuses(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "statuses")
	if h.sales == 0 {
		bought, err := h.purchases(ctx, statusOrders+10*h.wrk.connections)
		if err != nil {
			return costSample{}, err
		}
		if _, err := h.wrk.load(ctx, h.edge.addr, bought, h.cfg.seconds, h.parts); err != nil && !errors.Is(err, errTooFew) {
			return costSample{}, err
		}
		if _, err := h.written(ctx); err != nil {
			return costSample{}, err
		}
		if err := h.writeStatuses(ctx, requests); err != nil {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, false)
}

func (h *costHouse) writeStatuses(ctx context.Context, path string) error {
	rows, err := h.sql.Query(ctx, "SELECT id, buyer FROM orders ORDER BY buyer LIMIT $1", statusOrders)
	if err != nil {
		return err
	}
	type order struct {
		ID    int64
		Buyer string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[order])
	if err != nil {
		return err
	}
	return writeRequests(path, len(all), func(b []byte, i int) []byte {
		raw, err := key.Sign(all[i].Buyer, time.Hour)
		if err != nil {
			panic(err) // HS256 cannot fail
		}
		b = fmt.Appendf(b, "GET /v1/orders/%d HTTP/1.1\r\nHost: bench\r\nX-Forwarded-For: %s\r\nAuthorization: Bearer ",
			all[i].ID, addressOf(i))
		return append(append(b, raw...), "\r\n\r\n"...)
	})
}

// pages requests the page of a sale.
func (h *costHouse) pages(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "pages")
	if h.sales == 0 {
		h.sales++
		err := errors.Join(h.createSale(ctx, h.at, saleID, 1000, "1h"), writeRequests(requests, 100_000, opening))
		if err != nil {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, false)
}

// refusals buys in a sale that is sold out.
func (h *costHouse) refusals(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "refusals")
	if h.sales == 0 {
		h.sales++
		err := errors.Join(h.createSale(ctx, h.at, saleID, 1, "-1s"),
			writeRequests(requests, 100_000, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", i) }))
		if err != nil {
			return costSample{}, err
		}
		// One of these purchases is accepted.
		if _, err := h.wrk.load(ctx, h.edge.addr, requests, time.Second, h.parts); err != nil && !errors.Is(err, errTooFew) {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, true)
}

// printCost prints the medians of a case by part, and their range.
func printCost(w io.Writer, c costCase, sides []*costSide) {
	fmt.Fprintf(w, "\n%v: microseconds of processor time (user, kernel) for each, median (range) of the rounds\n", c)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(*costSide) string) {
		fmt.Fprintf(t, "%s\t", name)
		for _, side := range sides {
			fmt.Fprintf(t, "%s\t", cell(side))
		}
		fmt.Fprintln(t)
	}
	row("", func(s *costSide) string { return s.name })
	for i, part := range costParts {
		row(part, func(s *costSide) string {
			sum := s.each(func(x costSample) float64 { return x.part(i) })
			if len(s.samples[0].user) <= i {
				return ""
			}
			return fmt.Sprintf("%s %.1f + %.1f", middle(sum), median(s.each(func(x costSample) float64 { return x.user[i] })),
				median(s.each(func(x costSample) float64 { return x.kernel[i] })))
		})
	}
	row("sum", func(s *costSide) string { return middle(s.each(costSample.sum)) })
	ours := sides[0].each(costSample.sum)
	row("sluice's part of it", func(s *costSide) string {
		return "x " + middle(divided(ours, s.each(costSample.sum)))
	})
	rate := func(x costSample) float64 { return x.perSecond }
	row("per second", func(s *costSide) string { return number(median(s.each(rate))) })
	hello := sides[len(sides)-1].each(rate)
	row("per second, of hello", func(s *costSide) string { return middle(divided(s.each(rate), hello)) })
	if len(sides[0].samples[0].sizes) > 0 {
		for i, name := range costSizes {
			row(name+", bytes", func(s *costSide) string {
				if s.samples[0].sizes == nil {
					return ""
				}
				return middle(s.each(func(x costSample) float64 { return x.sizes[i] }))
			})
		}
	}
	t.Flush()
}

// part returns the time of one part; a side without the part has 0.
func (c costSample) part(i int) float64 {
	if i >= len(c.user) {
		return 0
	}
	return c.user[i] + c.kernel[i]
}

func (s *costSide) each(value func(costSample) float64) []float64 {
	var all []float64
	for _, sample := range s.samples {
		all = append(all, value(sample))
	}
	return all
}
