// Command bench measures sluice beside named baselines, in interleaved rounds on one machine, and prints ratios:
// absolute numbers depend on the load of the machine, ratios of the same minute hardly do. It starts every server that
// it needs and stops it again. Run it in its own directory; `go run .` prints the commands.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type command struct {
	name, summary string
	run           func(ctx context.Context, s *stage, args []string) error
}

// commands are the measurements, in the order of the usage.
var commands = []command{
	{"speed", "purchases, the edges, pages, orders and the queue beside named baselines", speed},
	{"queue", "the queue alone beside other queues: full, idle, and from a push to a row", queues},
	{"events", "order events from committed rows to three groups, beside Watermill", measureEvents},
	{"webhooks", "webhooks from SQL, beside a plain http.Client", webhooks},
	{"held", "orders, events and webhooks while another transaction is open in PostgreSQL", held},
	{"cost", "processor time of each part per answer", cost},
	{"million", "one sale of many units: cost per tenth, memory, SQL", million},
	{"machines", "rates of several machines, computed from the results of other commands", machines},
	{"open", "open pages: cost of each, and cleanup", openPages},
	{"memory", "Redis memory per accepted buyer and per queued order", memory},
	{"replay", "sluice policy replay: time and memory", replays},
	{"year", "a year of sales in PostgreSQL", year},
	{"scale", "one sale over several Redis masters", scale},
	{"up", "an idle sluice up: start time, processor time, memory", ups},
	{"pgo", "one profile for the compiler out of those that speed --profile has written", guide},
}

// usage prints the commands.
func usage(w io.Writer) {
	fmt.Fprint(w, "usage: bench COMMAND [flags]; bench COMMAND -h prints the flags\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
}

// contests are the measurements of speed, in the order in which they run.
var contests = []struct {
	name string
	of   func(*stage, settings) contest
}{
	{"purchase", purchase},
	{"table", table},
	{"edge", edge},
	{"limits", limits},
	{"gateway", gateways},
	{"pages", pages},
	{"orders", orders},
	{"queue", drain},
}

// settings are the flags of speed.
type settings struct {
	rounds  int
	seconds time.Duration  // of load, for each contestant of a round
	profile string         // directory for CPU profiles; empty: none
	match   *regexp.Regexp // of the ratios' names; nil: all
	batch   int            // orders in a batch of orders; 0: perBatch
	sockets bool           // Unix sockets connect the edge, the backend and the stores
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return 2
	}
	switch args[0] {
	case "child":
		return child(args[1:])
	case "opener":
		return openMain(args[1:])
	}
	at := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if at < 0 {
		usage(os.Stderr)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &stage{}
	defer s.clear()
	ignore := context.AfterFunc(ctx, func() { // ends any wait
		s.clear()
		os.Exit(130)
	})
	defer ignore()
	err := commands[at].run(ctx, s, args[1:])
	var wrong usageError
	switch {
	case ctx.Err() != nil:
		return 130
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	if errors.As(err, &wrong) {
		return 2
	}
	return 1
}

// usageError is an invalid command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// parse reads the flags of a command without arguments. Every number must be positive.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	var wrong []string
	flags.VisitAll(func(f *flag.Flag) {
		switch v := f.Value.(flag.Getter).Get().(type) {
		case int:
			if v < 1 {
				wrong = append(wrong, "--"+f.Name+" must be positive")
			}
		case float64:
			if v <= 0 {
				wrong = append(wrong, "--"+f.Name+" must be positive")
			}
		}
	})
	if flags.NArg() > 0 {
		wrong = append(wrong, fmt.Sprintf("unknown arguments %q", flags.Args()))
	}
	if len(wrong) > 0 {
		return usageError(strings.Join(wrong, "; "))
	}
	return nil
}

// among parses a comma-separated choice; an empty one means all.
func among(name, given string, all []string) ([]string, error) {
	if given == "" {
		return all, nil
	}
	wanted := strings.Split(given, ",")
	for _, w := range wanted {
		if !slices.Contains(all, w) {
			return nil, usageError(fmt.Sprintf("%s %q: want some of %s", name, w, strings.Join(all, ",")))
		}
	}
	return wanted, nil
}

// numbersIn parses a comma-separated list of numbers.
func numbersIn(name, list string, least, most int) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return nil, usageError(fmt.Sprintf("%s %q: want numbers from %d to %d", name, list, least, most))
		}
		all = append(all, n)
	}
	return all, nil
}

func speed(ctx context.Context, s *stage, args []string) error {
	var names []string
	for _, c := range contests {
		names = append(names, c.name)
	}
	flags := flag.NewFlagSet("speed", flag.ContinueOnError)
	only := flags.String("only", "", "comma-separated: "+strings.Join(names, ", ")+" (default: all)")
	rounds := flags.Int("rounds", 5, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 3, "seconds of load for each contestant of a round")
	match := flags.String("match", "", "regular expression: only ratios with a matching name")
	batch := flags.Int("batch", perBatch, "orders in a batch of orders; with 1, p50 and p99 of a batch are printed")
	profile := flags.String("profile", "",
		"directory for CPU profiles of sluice; the results are then those of a profiled program")
	if err := parse(flags, args); err != nil {
		return err
	}
	wanted, err := among("--only", *only, names)
	if err != nil {
		return err
	}
	matching, err := regexp.Compile(*match)
	if err != nil {
		return usageError(err.Error())
	}
	if *profile != "" {
		if err := os.MkdirAll(*profile, 0o755); err != nil {
			return err
		}
	}
	cfg := settings{
		rounds: *rounds, seconds: time.Duration(*seconds * float64(time.Second)), profile: *profile, match: matching,
		batch: *batch,
	}
	var results []result
	for _, c := range contests {
		if !slices.Contains(wanted, c.name) {
			continue
		}
		got, err := c.of(s, cfg).only(cfg.match).hold(ctx, cfg.rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, got...)
		s.clear()
	}
	if len(results) == 0 {
		return usageError(fmt.Sprintf("no ratio of these has a name that %q matches", *match))
	}
	printTable(os.Stdout, results)
	return nil
}
