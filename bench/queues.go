package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// queueParts are the measurements of `bench queue`, in the order in which they run.
var queueParts = []string{"drain", "rows", "depth", "idle"}

// fsyncs are the ways in which Redis writes its log: none, and appendfsync's own words.
var fsyncs = []string{"no", "everysec", "always"}

// queueReport is what `bench queue` has measured.
type queueReport struct {
	Drained []fsyncResult `json:"drained,omitempty"`
	Rows    []rowsResult  `json:"accepted_to_row,omitempty"`
	Depth   *depthResult  `json:"depth,omitempty"`
	Idle    []idleResult  `json:"idle,omitempty"`
}

type fsyncResult struct {
	Fsync string `json:"appendfsync"` // no: Redis writes no log
	result
}

// queues measures the queue alone.
func queues(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	only := flags.String("only", "", "comma-separated: "+strings.Join(queueParts, ", ")+" (default: all)")
	fsync := flags.String(
		"fsync",
		"",
		"comma-separated: "+strings.Join(fsyncs, ", ")+" (default: all); for drain and rows",
	)
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 5, "seconds of load for each contestant of a round of rows")
	rate := flags.Float64("rate", 0, "arrivals per second of rows (default: half of what the slowest side writes)")
	asJSON := flags.Bool("json", false, "print JSON instead of tables")
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	parts, err := among("--only", *only, queueParts)
	if err != nil {
		return err
	}
	modes, err := among("--fsync", *fsync, fsyncs)
	if err != nil {
		return err
	}
	if *rounds < 1 || *seconds <= 0 || *rate < 0 || flags.NArg() > 0 {
		return usageError("rounds and seconds must be positive, and there are no arguments")
	}
	load := rowsLoad{seconds: *seconds, rate: *rate, rounds: *rounds}
	report, err := measureQueue(ctx, s, parts, modes, load)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(os.Stdout, report)
	}
	report.print(os.Stdout)
	return nil
}

func measureQueue(ctx context.Context, s *stage, parts, modes []string, load rowsLoad) (report queueReport, err error) {
	for _, part := range parts {
		switch part {
		case "drain":
			for _, mode := range modes {
				results, err := drainPeers(ctx, s, load.rounds, mode)
				if err != nil {
					return report, fmt.Errorf("drain, appendfsync %s: %w", mode, err)
				}
				for _, r := range results {
					report.Drained = append(report.Drained, fsyncResult{mode, r})
				}
				s.clear()
			}
		case "rows":
			for _, mode := range modes {
				results, err := acceptedToRow(ctx, s, load, mode)
				if err != nil {
					return report, fmt.Errorf("rows, appendfsync %s: %w", mode, err)
				}
				report.Rows = append(report.Rows, results...)
				s.clear()
			}
		case "depth":
			r, err := depth(ctx, s, load.rounds)
			if err != nil {
				return report, fmt.Errorf("depth: %w", err)
			}
			report.Depth = &r
			s.clear()
		case "idle":
			if report.Idle, err = idle(ctx, s); err != nil {
				return report, fmt.Errorf("idle: %w", err)
			}
			s.clear()
		}
	}
	return report, nil
}

// fsyncArgs are the arguments of a redis-server that writes its log so.
func fsyncArgs(mode string) []string {
	if mode == "no" {
		return nil
	}
	return []string{"--appendonly", "yes", "--appendfsync", mode}
}

// drainPeers compares how fast a full queue is emptied by workers that do nothing with the messages: our list, raw
// streams, and two libraries, each in the setting that proves the fastest here.
func drainPeers(ctx context.Context, s *stage, rounds int, fsync string) ([]result, error) {
	d, err := newDrains(s, queued, fsyncArgs(fsync)...)
	if err != nil {
		return nil, err
	}
	byList, err := fastest(ctx, listSettings, d.list)
	if err != nil {
		return nil, err
	}
	byStream, err := fastest(ctx, streamSettings, d.stream)
	if err != nil {
		return nil, err
	}
	byRMQ, err := fastest(
		ctx,
		rmqSettings,
		func(c rmqSetting) func(context.Context) (float64, error) { return d.rmq(c, queuedRMQ/2) },
	)
	if err != nil {
		return nil, err
	}
	byAsynq, err := fastest(
		ctx,
		asynqSettings,
		func(c asynqSetting) func(context.Context) (float64, error) { return d.asynq(c, queuedAsynq/2) },
	)
	if err != nil {
		return nil, err
	}
	hundreds := listSetting{int(byStream), perStream}
	ours, stream, small, rmqName, asynqName := byList.String(), byStream.String(), hundreds.String(), byRMQ.String(), byAsynq.String()
	c := contest{
		name: "drain", unit: "messages", cost: d.cost, costOf: "Redis",
		contestants: []contestant{
			{ours, d.list(byList)}, {stream, d.stream(byStream)}, {small, d.list(hundreds)},
			{rmqName, d.rmq(byRMQ, queuedRMQ)}, {asynqName, d.asynq(byAsynq, queuedAsynq)},
		},
		ratios: []ratio{
			{"to streams", ours, stream, 2, 0},
			{"to streams, 100 on both sides", small, stream, 0, 0},
			{"to rmq", ours, rmqName, 20, 0},
			{"to asynq", ours, asynqName, 60, 0},
		},
	}
	return c.hold(ctx, rounds)
}

// What the sides may choose from.
var (
	listSettings   = []listSetting{{4, 500}, {4, 1000}, {16, 500}, {16, 1000}}
	streamSettings = []streamSetting{4, 16}
)

// among reads a comma-separated choice; an empty one means all.
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
