package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/test/testenv"
)

// connections that wrk keeps busy, with one thread: as many buyers wait for an answer at any time.
const connections = 128

//go:embed replay.lua
var replayScript string

// wrk is the load generator.
type wrk struct{ bin, script string }

func (s *stage) wrk() (*wrk, error) {
	w := &wrk{bin: testenv.Find(s, "wrk", "wrk"), script: filepath.Join(s.TempDir(), "replay.lua")}
	return w, os.WriteFile(w.script, []byte(replayScript), 0o644)
}

// outcome is what wrk saw.
type outcome struct {
	answers   int64 // complete answers within the time
	refused   int64 // of them, with a status of 400 or more
	perSecond float64
	p50, p99  time.Duration
}

// load sends the requests in a file, made by writeRequests, one after the other, each once, as fast as the answers
// come. Every request is sent at most once: when they do not last for the whole time, that is an error which wraps
// errTooFew.
func (w *wrk) load(ctx context.Context, addr, requests string, length time.Duration) (outcome, error) {
	seconds := max(1, int(length.Round(time.Second)/time.Second)) // wrk knows whole seconds only
	cmd := exec.CommandContext(
		ctx,
		w.bin,
		"-t1",
		fmt.Sprintf("-c%d", connections),
		fmt.Sprintf("-d%ds", seconds),
		"--timeout",
		"10s",
		"-s",
		w.script,
		"http://"+addr+"/",
		"--",
		requests,
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return outcome{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return parseOutcome(string(out))
}

var errTooFew = errors.New("the prepared requests did not last")

// parseOutcome reads the line that replay.lua writes at the end.
func parseOutcome(out string) (outcome, error) {
	_, line, found := strings.Cut(out, "replay: ")
	if !found {
		return outcome{}, fmt.Errorf("wrk did not finish:\n%s", out)
	}
	var o outcome
	var micros, broken, exhausted int64
	var p50, p99 float64
	if _, err := fmt.Sscanf(
		line,
		"%d %d %d %d %f %f %d",
		&o.answers,
		&micros,
		&o.refused,
		&broken,
		&p50,
		&p99,
		&exhausted,
	); err != nil {
		return outcome{}, fmt.Errorf("wrk wrote %q: %w", line, err)
	}
	o.perSecond = float64(o.answers) / (float64(micros) / 1e6)
	o.p50, o.p99 = time.Duration(p50*1e3), time.Duration(p99*1e3)
	switch {
	case exhausted > 0:
		return o, errTooFew
	case broken > 0:
		return o, fmt.Errorf("wrk: %d connections or answers broke", broken)
	}
	return o, nil
}

// writeRequests writes n requests for load. request appends the whole text of request i to b.
func writeRequests(path string, n int, request func(b []byte, i int) []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	var b []byte
	for i := range n {
		b = request(b[:0], i)
		fmt.Fprintf(w, "%d\n", len(b))
		_, _ = w.Write(b) // Flush returns the error
	}
	return errors.Join(w.Flush(), f.Close())
}
