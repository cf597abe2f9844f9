package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/internal/loop"
	"sluice/test/testenv"
)

// settleFor is the time until a sluice up is idle: it verifies Redis, and the first garbage collections follow.
const settleFor = 15 * time.Second

// idleUp is one measurement of a sluice up without clients.
type idleUp struct {
	start    time.Duration // from its start to the first response
	cpu      float64       // percent of a core
	switches float64       // context switches of its threads, per second
	resident float64       // MB
	file     float64       // MB of them that are pages of the program
}

// ups measures the cost of a sluice up with an empty data directory while no client uses it, in rounds interleaved with
// another working tree.
func ups(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "rounds")
	seconds := flags.Float64("seconds", 60, "seconds of each measurement")
	against := flags.String("against", "", "root of another working tree of sluice, measured in the same rounds")
	if err := parse(flags, args); err != nil {
		return err
	}
	bins := s.builds(*against)
	all := make([][]idleUp, len(bins))
	scene := s.scene() // of one measurement
	for round := range *rounds {
		order := []int{0, 1}[:len(bins)]
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			one, err := scene.idleUp(ctx, bins[i], time.Duration(*seconds*float64(time.Second)))
			scene.clear()
			if err != nil {
				return err
			}
			all[i] = append(all[i], one)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tfirst response\tof a core\tcontext switches/s\tresident\tpages of the program\t")
	for i, name := range []string{"sluice up", "against"}[:len(bins)] {
		for _, one := range all[i] {
			fmt.Fprintf(t, "%s\t%d ms\t%.2f%%\t%.0f\t%.1f MB\t%.1f MB\t\n", name,
				one.start.Milliseconds(), one.cpu, one.switches, one.resident, one.file)
		}
	}
	return t.Flush()
}

// idleUp starts a sluice up and measures it for d.
func (s *stage) idleUp(ctx context.Context, bin string, d time.Duration) (r idleUp, err error) {
	public, admin := testenv.FreeAddress(s), testenv.FreeAddress(s)
	began := time.Now()
	p := s.start(nil, bin, "up", "--listen", public, "--admin", admin, "--data", filepath.Join(s.TempDir(), "data"))
	if err := until(p, "answer", func() bool {
		_, err := fetch(ctx, "http://"+public+"/v1/sales", "")
		return err == nil
	}); err != nil {
		return r, err
	}
	r.start = time.Since(began)
	time.Sleep(settleFor)
	before, err := readThreads(p.Pid())
	if err != nil {
		return r, err
	}
	from := time.Now()
	loop.Sleep(ctx, d)
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	after, err := readThreads(p.Pid())
	if err != nil {
		return r, err
	}
	took := time.Since(from).Seconds()
	r.cpu = 100 * (after.cpu - before.cpu).Seconds() / took
	r.switches = float64(after.switches-before.switches) / took
	status, err := procFields(fmt.Sprintf("/proc/%d/status", p.Pid()))
	r.resident, r.file = float64(status["VmRSS"])/1024, float64(status["RssFile"])/1024
	return r, err
}

// threads is the use of the processor by the threads of a process so far.
type threads struct {
	cpu      time.Duration
	switches int64
}

// readThreads reads nanoseconds, where /proc/PID/stat has hundredths of a second.
func readThreads(pid int) (all threads, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return all, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if err != nil {
			return all, err
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			return all, err
		}
		all.cpu += time.Duration(n)
		status, err := procFields(filepath.Join(task, "status"))
		if err != nil {
			return all, err
		}
		all.switches += status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"]
	}
	return all, nil
}

// procFields reads the numbers of a file of /proc with a name in each line, without their units.
func procFields(path string) (map[string]int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if words := strings.Fields(value); len(words) > 0 {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				fields[name] = n
			}
		}
	}
	return fields, nil
}
