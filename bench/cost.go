package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"
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
	sockets := flags.Bool("sockets", false, "Unix sockets connect the edge, the processes and the stores of this tree")
	floor := flags.Bool("floor", false, "also measure the stores alone, with groups and batches of the same size")
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
	bins := s.builds(*against)
	scene := s.scene() // of one case; the built programs remain
	cfg := settings{
		rounds: *rounds, seconds: time.Duration(*seconds * float64(time.Second)), profile: *profile, sockets: *sockets,
	}
	for _, c := range cases {
		sides := []*costSide{newCostDeployment(scene, cfg, c, bins[0], noRewrites...).side("sluice")}
		if len(bins) > 1 {
			other := cfg
			other.profile, other.sockets = "", false
			sides = append(sides, newCostDeployment(scene, other, c, bins[1], noRewrites...).side("against"))
		}
		sides = append(sides, helloSide(scene, cfg, c))
		var bare *costFloor
		var last costSample // of sluice, also of the round that warms up
		n := len(sides)
		if *floor && c.of == "order" {
			bare, n = newCostFloor(scene, cfg, c), n+1
		}
		err := interleave(ctx, cfg.rounds, n, func(round, i int) error {
			if i == len(sides) {
				return bare.round(ctx, round, last)
			}
			got, err := sides[i].run(ctx)
			if err != nil {
				return fmt.Errorf("%v: %s: %w", c, sides[i].name, err)
			}
			if i == 0 {
				last = got
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
		if bare != nil {
			fmt.Println(bare)
		}
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
	numbers, err := numbersIn("--connections", conns, 1, 4000)
	errs = append(errs, err)
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
	figures      []float64 // of orders, by costFigures; nil: not measured
}

// costFigures are the bytes that an order adds, and how many orders share a piece of work.
var costFigures = []string{
	"AOF, bytes", "Redis memory, bytes", "WAL, bytes", "database, bytes",
	"orders in a run of the script", "orders in a batch of the worker",
}

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
		got, err := w.repeat(ctx, proxy.addr, requests, cfg.seconds, parts)
		return newCostSample(got.perSecond, before, parts.read(), got.answers), err
	}}
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
	for i, name := range costFigures {
		if i < len(sides[0].samples[0].figures) {
			row(name, func(s *costSide) string {
				if s.samples[0].figures == nil {
					return ""
				}
				return middle(s.each(func(x costSample) float64 { return x.figures[i] }))
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

func (s *costSide) each(value func(costSample) float64) []float64 { return values(s.samples, value) }
