package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// The most shards, and so Redis masters, of a deployment (docs/scale.md).
const maxMasters = 64

// fleet holds measurements of one machine, from which a fleet of several machines is computed.
type fleet struct {
	cores    int
	edge     float64 // µs of processor time per accepted order
	backend  float64
	redis    float64
	worker   float64
	rows     float64 // orders per second that one PostgreSQL wrote
	accepted float64 // orders per second of one machine with all parts and the load generator
	scaling  float64 // orders per second of several Redis masters, divided by their number and the rate of one
}

// measuredFleet holds the figures of docs/benchmarks.md (the cost of an accepted order over TCP; speed) and
// docs/scale.md (the lowest median of several masters).
var measuredFleet = fleet{
	cores: 2, edge: 35.4, backend: 28.1, redis: 9.8, worker: 4.0, rows: 126_589, accepted: 12_838, scaling: 0.92,
}

// machines prints the rates that one sale reaches on several machines. It measures nothing: the flags are results of
// other benchmarks, by default those in docs/benchmarks.md and docs/scale.md.
func machines(_ context.Context, _ *stage, args []string) error {
	flags := flag.NewFlagSet("machines", flag.ContinueOnError)
	list := flags.String("machines", "1,3,10,30,100", "numbers of machines: 1, or 3 and more")
	f := measuredFleet
	flags.IntVar(&f.cores, "cores", f.cores, "processors of each machine")
	flags.Float64Var(&f.edge, "edge", f.edge, "us of the nginx edge per accepted order, from bench cost")
	flags.Float64Var(&f.backend, "backend", f.backend, "us of the backend per accepted order, from bench cost")
	flags.Float64Var(&f.redis, "redis", f.redis, "us of Redis per accepted order, from bench cost")
	flags.Float64Var(&f.worker, "worker", f.worker, "us of the worker per accepted order, from bench cost")
	flags.Float64Var(&f.rows, "rows", f.rows, "orders/s that PostgreSQL writes, from bench speed --only orders")
	flags.Float64Var(&f.accepted, "measured", f.accepted, "accepted orders/s of one machine, from bench speed")
	flags.Float64Var(&f.scaling, "scaling", f.scaling, "orders/s of n masters of n times one, from bench scale")
	if err := parse(flags, args); err != nil {
		return err
	}
	numbers, err := numbersIn("--machines", *list, 1, 10_000)
	if err != nil {
		return err
	}
	if slices.Contains(numbers, 2) {
		return usageError("--machines 2: want 1, or 3 and more")
	}
	if f.scaling > 1 {
		return usageError(fmt.Sprintf("--scaling %g: want at most 1", f.scaling))
	}
	f.print(os.Stdout, numbers)
	return nil
}

// perSecond returns the orders per second that some cores handle, at a processor time per order in µs.
func perSecond(cores int, each float64) float64 { return float64(cores) * 1e6 / each }

// fleetSize is a fleet of several machines.
type fleetSize struct {
	accepted, rows float64 // orders per second
	masters        int     // of Redis
	limit          string  // the part that bounds accepted
}

// of returns a fleet of n machines, at least 3: one for PostgreSQL, the others for all other parts.
func (f fleet) of(n int) fleetSize {
	s := fleetSize{accepted: perSecond((n-1)*f.cores, f.edge+f.backend+f.redis+f.worker), limit: "processors"}
	if most := maxMasters * f.master(); s.accepted > most {
		s.accepted, s.limit = most, "Redis: the most shards"
	}
	s.masters = int(math.Ceil(s.accepted / f.master()))
	s.rows = math.Min(s.accepted, f.rows)
	return s
}

// master returns the orders per second of one Redis master among several. Redis runs scripts in one thread.
func (f fleet) master() float64 { return f.scaling * perSecond(1, f.redis) }

// print writes the tables of docs/scale.md.
func (f fleet) print(w io.Writer, numbers []int) {
	fmt.Fprint(w, "| part | µs per order, measured | bound of one machine, computed | to grow |\n"+
		"| --- | --- | --- | --- |\n")
	for _, part := range []struct {
		name  string
		cost  float64
		cores int
		grow  string
	}{
		{"edge", f.edge, f.cores, "another edge"},
		{"backend", f.backend, f.cores, "another backend"},
		{"Redis", f.redis, 1, fmt.Sprintf("another master, up to %d; a master runs scripts in one thread", maxMasters)},
		{"worker", f.worker, f.cores, "another worker"},
	} {
		fmt.Fprintf(w, "| %s | %.1f | %s orders/s | %s |\n", part.name, part.cost, number(perSecond(part.cores, part.cost)),
			part.grow)
	}
	fmt.Fprintf(w, "| PostgreSQL | | %s orders/s, measured | more processors, faster disks; there is one primary |\n\n",
		number(f.rows))
	fmt.Fprintf(w, "One PostgreSQL machine; edges, backends, workers and Redis masters share the other n - 1, of %d "+
		"processors each:\n\n", f.cores)
	fmt.Fprintf(w, "```\naccepted/s = (n - 1) * %d * 1,000,000 / (%.1f + %.1f + %.1f + %.1f), at most %d * master\n",
		f.cores, f.edge, f.backend, f.redis, f.worker, maxMasters)
	fmt.Fprintf(w, "master     = %.2f * 1,000,000 / %.1f = %s orders/s\n", f.scaling, f.redis, number(f.master()))
	fmt.Fprintf(w, "masters    = accepted/s / master, rounded up\n"+
		"rows/s     = the smaller of accepted/s and %s\n```\n\n", number(f.rows))
	fmt.Fprint(w, "| machines | | accepted/s | rows/s | Redis masters | a million units: sold in, all rows after | "+
		"accepting is limited by | rows are limited by |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	const million = 1e6
	for _, n := range numbers {
		if n == 1 {
			fmt.Fprintf(w, "| 1 | **measured** | %s | %[1]s | 1 | %s, %[2]s | processors, which all parts and the load "+
				"generator share | accepting |\n", number(f.accepted), seconds(million/f.accepted))
			continue
		}
		s := f.of(n)
		rows := "accepting"
		if s.rows < s.accepted {
			rows = "PostgreSQL; the others wait in Redis"
		}
		fmt.Fprintf(w, "| %d | extrapolated | %s | %s | %d | %s, %s | %s | %s |\n", n, number(s.accepted), number(s.rows),
			s.masters, seconds(million/s.accepted), seconds(million/s.rows), s.limit, rows)
	}
}

func seconds(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}
