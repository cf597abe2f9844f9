package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// replayed is the cost of `sluice policy replay` for one log.
type replayed struct {
	seconds, cpu float64
	peak         int64 // resident bytes
}

// replays creates logs and replays them with the released program. It prints the round with the median time.
func replays(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	lines := flags.Int("lines", 1_000_000, "lines of each log")
	rounds := flags.Int("rounds", 3, "rounds")
	if err := parse(flags, args); err != nil {
		return err
	}
	dir := s.TempDir()
	own, combined := filepath.Join(dir, "json.log"), filepath.Join(dir, "combined.log")
	if err := errors.Join(writeLog(own, *lines, asked.json), writeLog(combined, *lines, asked.combined)); err != nil {
		return err
	}
	bin, policy := s.build(), filepath.Join(s.root(), "lua/policy.lua")
	runs := []struct {
		what, log string
		more      []string
		rounds    []replayed
	}{
		{what: "the edges' own log", log: own},
		{what: "the same, --against another policy", log: own, more: []string{"--against", policy}},
		{what: "nginx's combined log", log: combined},
	}
	for range *rounds {
		for i, r := range runs {
			one, err := replayOnce(ctx, bin, append([]string{"policy", "replay", r.log, "--policy", policy}, r.more...))
			if err != nil {
				return err
			}
			runs[i].rounds = append(r.rounds, one)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tlines\tlog\tseconds\tspread\tprocessor seconds\tpeak resident\t")
	for _, r := range runs {
		info, err := os.Stat(r.log)
		if err != nil {
			return err
		}
		slices.SortFunc(r.rounds, func(a, b replayed) int { return cmp.Compare(a.seconds, b.seconds) })
		least, middle, most := r.rounds[0], r.rounds[len(r.rounds)/2], r.rounds[len(r.rounds)-1]
		fmt.Fprintf(t, "%s\t%s\t%.0f MB\t%.2f\t%.2f..%.2f\t%.2f\t%.0f MB\t\n", r.what, number(float64(*lines)),
			float64(info.Size())/1e6, middle.seconds, least.seconds, most.seconds, middle.cpu, float64(middle.peak)/1e6)
	}
	return t.Flush()
}

func replayOnce(ctx context.Context, bin string, args []string) (replayed, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Stderr = os.Stderr
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if err != nil {
		return replayed{}, fmt.Errorf("sluice policy replay: %w", err)
	}
	used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return replayed{}, fmt.Errorf("this system does not report the resource usage of a process")
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return replayed{seconds: took.Seconds(), cpu: cpu.Seconds(), peak: used.Maxrss * 1024}, nil // Linux counts in KiB
}
