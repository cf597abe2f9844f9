package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

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
	names, bins := []string{"sluice up"}, []string{s.build()}
	if *against != "" {
		root, err := filepath.Abs(*against)
		if err != nil {
			return err
		}
		names, bins = append(names, "against"), append(bins, s.buildOf(root))
	}
	all := make([][]idleUp, len(bins))
	for round := range *rounds {
		order := []int{0, 1}[:len(bins)]
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			one, err := s.idleUp(ctx, bins[i], time.Duration(*seconds*float64(time.Second)))
			if err != nil {
				return err
			}
			all[i] = append(all[i], one)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tfirst response\tof a core\tcontext switches/s\tresident\tpages of the program\t")
	for i, name := range names {
		for _, one := range all[i] {
			fmt.Fprintf(t, "%s\t%d ms\t%.2f%%\t%.0f\t%.1f MB\t%.1f MB\t\n", name,
				one.start.Milliseconds(), one.cpu, one.switches, one.resident, one.file)
		}
	}
	return t.Flush()
}

// idleUp starts a sluice up, measures it for d, and stops it.
func (s *stage) idleUp(ctx context.Context, bin string, d time.Duration) (r idleUp, err error) {
	defer s.clearTo(s.mark())
	public, admin := testenv.FreeAddress(s), testenv.FreeAddress(s)
	began := time.Now()
	p := s.start(nil, bin, "up", "--listen", public, "--admin", admin, "--data", filepath.Join(s.TempDir(), "data"))
	if err := answers(ctx, p, "http://"+public+"/v1/sales"); err != nil {
		return r, err
	}
	r.start = time.Since(began)
	time.Sleep(settleFor)
	before, err := readThreads(p.Pid())
	if err != nil {
		return r, err
	}
	from := time.Now()
	select {
	case <-ctx.Done():
		return r, ctx.Err()
	case <-time.After(d):
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

// answers waits until a program answers a GET of a URL with 200.
func answers(ctx context.Context, p *testenv.Program, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		select {
		case <-p.Done():
			return fmt.Errorf("a program exited at start:\n%s", p.Output())
		default:
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("a program does not answer %s:\n%s", url, p.Output())
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
