package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// replayed is what `sluice policy replay` takes for one log. Of several rounds, the figures of the one with the
// median time.
type replayed struct {
	What     string  `json:"what"`
	Lines    int     `json:"lines"`
	LogBytes int64   `json:"log_bytes"`
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu_seconds"`
	Peak     int64   `json:"peak_resident_bytes"`
	Least    float64 `json:"least_seconds"`
	Most     float64 `json:"most_seconds"`
}

// replays makes logs and puts them through the policy, with the released program.
func replays(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	lines := flags.Int("lines", 1_000_000, "lines of each log")
	rounds := flags.Int("rounds", 3, "rounds")
	keep := flags.String("keep", "", "directory for the logs, which are kept")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	if *lines < 1 || *rounds < 1 || flags.NArg() > 0 {
		return usageError("lines and rounds must be positive, and there are no arguments")
	}
	if *keep == "" {
		*keep = s.TempDir()
	} else if err := os.MkdirAll(*keep, 0o755); err != nil {
		return err
	}
	results, err := replayAll(ctx, s, *keep, *lines, *rounds)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(os.Stdout, results)
	}
	printReplays(os.Stdout, results)
	return nil
}

func replayAll(ctx context.Context, s *stage, dir string, lines, rounds int) ([]replayed, error) {
	own, combined := filepath.Join(dir, "json.log"), filepath.Join(dir, "combined.log")
	if err := (recorded{lines: lines}).write(own); err != nil {
		return nil, err
	}
	if err := (recorded{lines: lines, combined: true}).write(combined); err != nil {
		return nil, err
	}
	bin, err := s.build(ctx)
	if err != nil {
		return nil, err
	}
	top, err := root(ctx)
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(top, "lua/policy.lua")
	runs := []struct {
		what, log string
		more      []string
	}{
		{"the edges' own log", own, nil},
		{"the same, --against another policy", own, []string{"--against", policy}},
		{"nginx's combined log", combined, nil},
	}
	taken := make([][]replayed, len(runs))
	for range rounds {
		for i, r := range runs {
			one, err := replayOnce(ctx, bin, append([]string{"policy", "replay", r.log, "--policy", policy}, r.more...))
			if err != nil {
				return nil, err
			}
			info, err := os.Stat(r.log)
			if err != nil {
				return nil, err
			}
			one.What, one.Lines, one.LogBytes = r.what, lines, info.Size()
			taken[i] = append(taken[i], one)
		}
	}
	results := make([]replayed, len(runs))
	for i, of := range taken {
		slices.SortFunc(of, func(a, b replayed) int { return int(1e6 * (a.Seconds - b.Seconds)) })
		results[i] = of[len(of)/2]
		results[i].Least, results[i].Most = of[0].Seconds, of[len(of)-1].Seconds
	}
	return results, nil
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
	return replayed{Seconds: took.Seconds(), CPU: cpu.Seconds(), Peak: used.Maxrss * 1024}, nil // Linux counts in KiB
}

func printReplays(w io.Writer, results []replayed) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tlines\tlog\tseconds\tspread\tprocessor seconds\tpeak resident\t")
	for _, r := range results {
		fmt.Fprintf(
			t,
			"%s\t%s\t%.0f MB\t%.2f\t%.2f..%.2f\t%.2f\t%.0f MB\t\n",
			r.What,
			number(float64(r.Lines)),
			float64(r.LogBytes)/1e6,
			r.Seconds,
			r.Least,
			r.Most,
			r.CPU,
			float64(r.Peak)/1e6,
		)
	}
	t.Flush()
}
