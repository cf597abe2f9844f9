package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// queueParts are the measurements of `bench queue`, in the order in which they run.
var queueParts = []string{"drain", "rows", "depth", "idle"}

// fsyncs are the ways in which Redis writes its log: none, and the values of appendfsync.
var fsyncs = []string{"no", "everysec", "always"}

// queues measures the queue alone, and prints the table of each part when it is complete.
func queues(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	only := flags.String("only", "", "comma-separated: "+strings.Join(queueParts, ", ")+" (default: all)")
	fsync := flags.String("fsync", "",
		"comma-separated: "+strings.Join(fsyncs, ", ")+" (default: all); for drain and rows")
	rounds := flags.Int("rounds", 3, "rounds that count; one more warms up")
	seconds := flags.Float64("seconds", 5, "seconds of load for each contestant of a round of rows")
	batch := flags.Int("batch", perTake, "messages that every side with batches takes together, for drain and rows; "+
		strconv.Itoa(perTake)+": the best or the default of each")
	if err := parse(flags, args); err != nil {
		return err
	}
	parts, err := among("--only", *only, queueParts)
	if err != nil {
		return err
	}
	modes, err := among("--fsync", *fsync, fsyncs)
	if err != nil {
		return err
	}
	for _, part := range parts {
		switch part {
		case "drain":
			err = each(s, modes, func(mode string) error {
				if *batch == perTake {
					return drainPeers(ctx, s, *rounds, mode)
				}
				return drainInBatches(ctx, s, *rounds, mode, *batch)
			})
		case "rows":
			err = each(s, modes, func(mode string) error {
				return acceptedToRow(ctx, s, *rounds, *seconds, mode, *batch)
			})
		case "depth":
			err = depth(ctx, s, *rounds)
		case "idle":
			err = idle(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		s.clear()
	}
	return nil
}

func each(s *stage, modes []string, do func(mode string) error) error {
	for _, mode := range modes {
		if err := do(mode); err != nil {
			return fmt.Errorf("appendfsync %s: %w", mode, err)
		}
		s.clear()
	}
	return nil
}

// fsyncArgs returns the arguments of a redis-server for a way of writing its log.
func fsyncArgs(mode string) []string {
	if mode == "no" {
		return nil
	}
	return []string{"--appendonly", "yes", "--appendfsync", mode}
}

// drainPeers compares how fast workers that do nothing with the messages empty a full queue: our list, raw streams, and
// two libraries, each in the setting that is fastest here.
func drainPeers(ctx context.Context, s *stage, rounds int, fsync string) error {
	d := newDrains(s, queued, fsyncArgs(fsync)...)
	by, err := d.fastest(ctx, listSettings)
	if err != nil {
		return err
	}
	hundreds := listSetting{int(by.stream), perStream}
	ours, stream, small := by.list.String(), by.stream.String(), hundreds.String()
	c := contest{
		name: "drain", unit: "messages", cost: func() float64 { return d.spent }, costOf: "Redis",
		contestants: []contestant{
			{ours, d.list(by.list)},
			{stream, d.stream(by.stream)},
			{small, d.list(hundreds)},
			{by.rmq.String(), d.rmq(by.rmq, queuedRMQ)},
			{by.asynq.String(), d.asynq(by.asynq, queuedAsynq)},
		},
		ratios: []ratio{
			{"to streams", ours, stream, 2, 0},
			{"to streams, 100 on both sides", small, stream, 0, 0},
			{"to rmq", ours, by.rmq.String(), 20, 0},
			{"to asynq", ours, by.asynq.String(), 60, 0},
		},
	}
	results, err := c.hold(ctx, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("\ndrained by a handler that does nothing, appendfsync %s\n", fsync)
	printTable(os.Stdout, results)
	return nil
}

// drainSettings is a setting for each side of a comparison of drained queues.
type drainSettings struct {
	list   listSetting
	stream streamSetting
	rmq    rmqSetting
	asynq  asynqSetting
}

// fastest returns the fastest setting of each side on this machine; of our list, one of the given settings.
func (d *drains) fastest(ctx context.Context, lists []listSetting) (by drainSettings, err error) {
	if by.list, err = fastest(ctx, lists, d.list); err != nil {
		return by, err
	}
	if by.stream, err = fastest(ctx, streamSettings, d.stream); err != nil {
		return by, err
	}
	rmq := func(c rmqSetting) measurement { return d.rmq(c, queuedRMQ/2) }
	if by.rmq, err = fastest(ctx, rmqSettings, rmq); err != nil {
		return by, err
	}
	by.asynq, err = fastest(ctx, asynqSettings, func(c asynqSetting) measurement { return d.asynq(c, queuedAsynq/2) })
	return by, err
}

// drainInBatches is drainPeers with one batch size on all sides that have batches; asynq has none. It is for
// orientation.
func drainInBatches(ctx context.Context, s *stage, rounds int, fsync string, batch int) error {
	d := newDrains(s, queued/10, fsyncArgs(fsync)...)
	d.batch = batch
	by, err := d.fastest(ctx, []listSetting{{4, batch}, {16, batch}})
	if err != nil {
		return err
	}
	list, stream, rmq, asynq := by.list.String(), by.stream.String(), by.rmq.String(), by.asynq.String()
	c := contest{
		name: "drain", unit: "messages", cost: func() float64 { return d.spent }, costOf: "Redis",
		contestants: []contestant{
			{list, d.list(by.list)}, {stream, d.stream(by.stream)}, {rmq, d.rmq(by.rmq, queuedRMQ)},
			{asynq, d.asynq(by.asynq, queuedAsynq)},
		},
		ratios: []ratio{
			{"to streams", list, stream, 0, 0}, {"to rmq", list, rmq, 0, 0}, {"to asynq", list, asynq, 0, 0},
		},
	}
	results, err := c.hold(ctx, rounds)
	if err != nil {
		return err
	}
	fmt.Printf("\ndrained by a handler that does nothing, batches of %d, appendfsync %s\n", batch, fsync)
	printTable(os.Stdout, results)
	return nil
}

// The settings that are tried.
var (
	listSettings   = []listSetting{{4, 500}, {4, 1000}, {16, 500}, {16, 1000}}
	streamSettings = []streamSetting{4, 16}
)
