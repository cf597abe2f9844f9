package main

import (
	"context"
	"flag"
	"fmt"
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
				return drainPeers(ctx, s, *rounds, mode, *batch)
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
// two libraries, each in the setting that is fastest here. A batch other than perTake is that of every side that has
// batches; asynq has none. It is then for orientation.
func drainPeers(ctx context.Context, s *stage, rounds int, fsync string, batch int) error {
	n, lists := queued, []listSetting{{4, 500}, {4, 1000}, {16, 500}, {16, 1000}}
	if batch != perTake {
		n, lists = queued/10, []listSetting{{4, batch}, {16, batch}}
	}
	d := newDrains(s, n, fsyncArgs(fsync)...)
	d.batch = streamBatch(batch)
	list, err := fastest(ctx, lists, d.list)
	if err != nil {
		return err
	}
	stream, err := fastest(ctx, []streamSetting{4, 16}, d.stream)
	if err != nil {
		return err
	}
	rmq, err := fastest(ctx, rmqSettings, func(c rmqSetting) measurement { return d.rmq(c, queuedRMQ/2) })
	if err != nil {
		return err
	}
	asynq, err := fastest(ctx, asynqSettings, func(c asynqSetting) measurement { return d.asynq(c, queuedAsynq/2) })
	if err != nil {
		return err
	}
	ours, streams := list.String(), stream.String()
	c := contest{
		name: "drain", unit: "messages", cost: func() float64 { return d.spent }, costOf: "Redis",
		contestants: []contestant{
			{ours, d.list(list)}, {streams, d.stream(stream)}, {rmq.String(), d.rmq(rmq, queuedRMQ)},
			{asynq.String(), d.asynq(asynq, queuedAsynq)},
		},
		ratios: []ratio{
			{"to streams", ours, streams, 2, 0}, {"to rmq", ours, rmq.String(), 20, 0},
			{"to asynq", ours, asynq.String(), 60, 0},
		},
	}
	if batch == perTake {
		small := listSetting{int(stream), perStream}
		c.contestants = append(c.contestants, contestant{small.String(), d.list(small)})
		c.ratios = append(c.ratios, ratio{"to streams, 100 on both sides", small.String(), streams, 0, 0})
	} else {
		c = c.untargeted()
	}
	fmt.Printf("\ndrained by a handler that does nothing, %s, appendfsync %s\n", batches(batch), fsync)
	_, err = c.report(ctx, rounds)
	return err
}
