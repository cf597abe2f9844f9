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

// connections is the default number of connections that wrk keeps busy, with one thread: as many buyers wait for a
// response at any time.
const connections = 128

//go:embed replay.lua
var replayScript string

// wrk is the load generator.
type wrk struct {
	bin, script, dir string
	connections      int
}

func (s *stage) wrk() *wrk {
	w := &wrk{bin: testenv.Find(s, "wrk", "wrk"), dir: s.TempDir(), connections: connections}
	w.script = filepath.Join(w.dir, "replay.lua")
	s.check(os.WriteFile(w.script, []byte(replayScript), 0o644))
	return w
}

// arguments returns those of wrk. mode is an option of replay.lua.
func (w *wrk) arguments(addr, length, requests string, mode ...string) []string {
	return append([]string{
		"-t1", fmt.Sprintf("-c%d", w.connections), length, "--timeout", "10s", "-s", w.script, "http://" + addr + "/",
		"--", requests,
	}, mode...)
}

// outcome is the result of a run of wrk.
type outcome struct {
	answers   int64 // complete answers within the time
	refused   int64 // of these, the ones with a status of 400 or more
	perSecond float64
	p50, p99  time.Duration
}

// load sends the requests in a file, made by writeRequests, one after the other, as fast as the responses arrive, and
// prints the cost of a response for each part. It sends no request twice: if they do not last for the whole time, it
// returns an error that wraps errTooFew.
func (w *wrk) load(
	ctx context.Context, addr, requests string, length time.Duration, parts *meter,
) (outcome, error) {
	seconds := max(1, int(length.Round(time.Second)/time.Second)) // wrk knows whole seconds only
	spent := parts.read()
	args := w.arguments(addr, fmt.Sprintf("-d%ds", seconds), requests)
	out, err := exec.CommandContext(ctx, w.bin, args...).CombinedOutput()
	if err != nil {
		return outcome{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	o, err := parseOutcome(string(out))
	if err == nil || errors.Is(err, errTooFew) {
		fmt.Fprintf(os.Stderr, "  each answer: %s  p50 %v  p99 %v\n", parts.each(spent, o.answers),
			o.p50.Round(10*time.Microsecond), o.p99.Round(10*time.Microsecond))
	}
	return o, err
}

// repeat is load with requests that may be sent again, from the first one on.
func (w *wrk) repeat(
	ctx context.Context, addr, requests string, length time.Duration, parts *meter,
) (outcome, error) {
	got, err := w.load(ctx, addr, requests, length, parts)
	if errors.Is(err, errTooFew) {
		err = nil
	}
	return got, err
}

// steady measures a server for which repeated requests are like new ones. Every response must be good.
func (w *wrk) steady(addr, requests string, cfg settings, parts *meter) measurement {
	return func(ctx context.Context) (float64, error) {
		got, err := w.repeat(ctx, addr, requests, cfg.seconds, parts)
		if err == nil && got.refused > 0 {
			err = fmt.Errorf("%d of %d answers are refusals", got.refused, got.answers)
		}
		return got.perSecond, err
	}
}

// fresh measures with requests that are sent once. It prepares half as many again as the last measurement has sent.
// measure gets their file; if it returns errTooFew, fresh prepares more and repeats it. rate is the first estimate;
// write writes n requests.
func (w *wrk) fresh(
	rate float64, cfg settings, write func(ctx context.Context, path string, n int) error,
	measure func(ctx context.Context, requests string, n int) (float64, error),
) measurement {
	return func(ctx context.Context) (float64, error) {
		for {
			n := int(rate*cfg.seconds.Seconds()*3/2) + 10*w.connections
			path := filepath.Join(w.dir, "requests")
			if err := write(ctx, path, n); err != nil {
				return 0, err
			}
			perSecond, err := measure(ctx, path, n)
			if !errors.Is(err, errTooFew) {
				rate = perSecond
				return perSecond, err
			}
			rate *= 1.5
		}
	}
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
	if _, err := fmt.Sscanf(line, "%d %d %d %d %f %f %d",
		&o.answers, &micros, &o.refused, &broken, &p50, &p99, &exhausted); err != nil {
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

// buyRequest appends the purchase of buyer i in a sale, from an address of its own behind a trusted proxy, with
// further headers.
func buyRequest(b []byte, sale, headers string, i int) []byte {
	raw, err := key.Sign(buyerName(i), time.Hour)
	if err != nil {
		panic(err) // HS256 cannot fail
	}
	b = fmt.Appendf(b, "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n%s", sale, headers)
	b = fmt.Appendf(b, "X-Forwarded-For: %s\r\nAuthorization: Bearer ", addressOf(i))
	return append(append(b, raw...), "\r\n\r\n"...)
}

// addressOf is the address of buyer i.
func addressOf(i int) string { return fmt.Sprintf("10.%d.%d.%d", byte(i>>16), byte(i>>8), byte(i)) }
