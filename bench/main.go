// Command bench measures sluice side by side with named baselines, in interleaved rounds on one machine, and prints
// ratios: absolute numbers of a busy machine mean little, two numbers of the same minute do. It starts every server
// it needs and stops it again.
//
//	go run . speed  [--only purchase,edge,limits,gateway,pages,orders,queue] [--match regexp] [--rounds n] [--seconds s] [--json]
//	                [--profile directory]
//	go run . queue  [--only drain,rows,depth,idle] [--fsync no,everysec,always] [--rounds n] [--seconds s] [--rate r] [--json]
//	go run . events [--rounds n] [--seconds s] [--json]
//	go run . webhooks [--deliveries n] [--rounds n] [--json]
//	go run . open   [--buyers n] [--rounds n] [--json]
//	go run . memory [--buyers n] [--json]
//	go run . replay [--lines n] [--rounds n] [--keep directory] [--json]
//	go run . pgo    -o FILE PROFILE ...    (one profile for the compiler out of those that speed --profile has written)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

const usage = `usage: bench speed  [--only purchase,edge,limits,gateway,pages,orders,queue] [--match regexp] [--rounds n] [--seconds s] [--json]
                    [--profile directory]
       bench queue  [--only drain,rows,depth,idle] [--fsync no,everysec,always] [--rounds n] [--seconds s] [--rate r] [--json]
       bench events [--rounds n] [--seconds s] [--json]
       bench webhooks [--deliveries n] [--rounds n] [--json]
       bench open   [--buyers n] [--rounds n] [--json]
       bench memory [--buyers n] [--json]
       bench replay [--lines n] [--rounds n] [--keep folder] [--json]
       bench pgo    -o FILE PROFILE ...
`

// contests are the measurements of speed, in the order in which they run.
var contests = []struct {
	name string
	hold func(context.Context, *stage, settings) ([]result, error)
}{
	{"purchase", purchase},
	{"edge", edge},
	{"limits", limits},
	{"gateway", gateways},
	{"pages", pages},
	{"orders", orders},
	{"queue", drain},
}

// settings are the command's flags.
type settings struct {
	rounds  int
	seconds time.Duration  // of load, for each contestant of a round
	profile string         // directory for CPU profiles; empty: none
	match   *regexp.Regexp // of the ratios' names; nil: all
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if args[0] == "child" {
		return child(args[1:])
	}
	if args[0] == "opener" {
		return openMain(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := newStage()
	defer s.clear()
	ignore := context.AfterFunc(ctx, func() { // whatever is being waited for
		s.clear()
		os.Exit(130)
	})
	defer ignore()
	var err error
	switch args[0] {
	case "speed":
		err = speed(ctx, s, args[1:])
	case "queue":
		err = queues(ctx, s, args[1:])
	case "events":
		err = measureEvents(ctx, s, args[1:])
	case "webhooks":
		err = webhooks(ctx, s, args[1:])
	case "open":
		err = openPages(ctx, s, args[1:])
	case "memory":
		err = memory(ctx, s, args[1:])
	case "replay":
		err = replays(ctx, s, args[1:])
	case "pgo":
		err = guide(args[1:])
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	var wrong usageError
	switch {
	case ctx.Err() != nil:
		return 130
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// usageError is an invalid command line.
type usageError string

func (e usageError) Error() string { return string(e) }

func speed(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("speed", flag.ContinueOnError)
	only := flags.String(
		"only",
		"",
		"comma-separated: purchase, edge, limits, gateway, pages, orders, queue (default: all)",
	)
	rounds := flags.Int("rounds", 5, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 3, "seconds of load for each contestant of a round")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	match := flags.String("match", "", "regular expression: only ratios with a matching name")
	profile := flags.String(
		"profile",
		"",
		"directory for CPU profiles of sluice; the results are then those of a profiled program",
	)
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	if *rounds < 1 || *seconds <= 0 || flags.NArg() > 0 {
		return usageError("rounds and seconds must be positive, and there are no arguments")
	}
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	names, err := regexp.Compile(*match)
	if err != nil {
		return usageError(err.Error())
	}
	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
	}
	cfg := settings{
		rounds:  *rounds,
		seconds: time.Duration(*seconds * float64(time.Second)),
		profile: *profile,
		match:   names,
	}
	var results []result
	for _, c := range contests {
		if !slices.Contains(wanted, c.name) {
			continue
		}
		got, err := c.hold(ctx, s, cfg)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, got...)
		s.clear()
	}
	if len(results) == 0 {
		return usageError(fmt.Sprintf("no ratio of these has a name that %q matches", *match))
	}
	if *asJSON {
		return printJSON(os.Stdout, results)
	}
	printTable(os.Stdout, results)
	return nil
}

func choose(only string) ([]string, error) {
	var all []string
	for _, c := range contests {
		all = append(all, c.name)
	}
	return among("--only", only, all)
}

func errOf(flagErr error) error {
	if errors.Is(flagErr, flag.ErrHelp) {
		return flagErr
	}
	return usageError(flagErr.Error())
}
