package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain lets the test binary be the child processes as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(child(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// skipLong skips a test that runs a benchmark or needs wrk, with -short. make bench-test runs it.
func skipLong(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("run by make bench-test")
	}
}

func TestParseOutcome(t *testing.T) {
	got, err := parseOutcome("Running 2s test\n...\nreplay: 6000 2000000 17 0 1500.000000 9000.500000 0\n")
	want := outcome{
		answers:   6000,
		refused:   17,
		perSecond: 3000,
		p50:       1500 * time.Microsecond,
		p99:       9000500 * time.Nanosecond,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for text, wanted := range map[string]error{
		"replay: 60 2000000 0 0 1.0 1.0 1\n": errTooFew,
		"replay: 60 2000000 0 3 1.0 1.0 0\n": nil,
		"replay: a b c\n":                    nil,
		"unable to connect":                  nil,
	} {
		_, err := parseOutcome(text)
		if err == nil || wanted != nil && !errors.Is(err, wanted) {
			t.Errorf("%q: error %v, want %v", text, err, wanted)
		}
	}
}

// TestLoadSendsEachRequestOnce runs wrk against a counting server: a repeated request would be a replay.
func TestLoadSendsEachRequestOnce(t *testing.T) {
	skipLong(t)
	s := &stage{}
	t.Cleanup(s.clear)
	w := s.wrk()
	var mu sync.Mutex
	seen, twice := map[string]int{}, 0
	addr := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path]++
		if seen[r.URL.Path] > 1 {
			twice++
		}
	})
	path := filepath.Join(t.TempDir(), "requests")
	write := func(n int) {
		if err := writeRequests(
			path,
			n,
			func(b []byte, i int) []byte { return fmt.Appendf(b, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i) },
		); err != nil {
			t.Fatal(err)
		}
	}
	write(1_000_000)
	got, err := w.load(t.Context(), addr, path, time.Second, newMeter())
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if twice > 0 || int64(len(seen)) < got.answers || got.answers == 0 {
		t.Errorf("%d answers, %d different requests, %d repeated", got.answers, len(seen), twice)
	}
	mu.Unlock()

	write(50)
	if _, err := w.load(t.Context(), addr, path, time.Second, newMeter()); !errors.Is(err, errTooFew) {
		t.Errorf("with 50 requests for a second: error %v", err)
	}
}

func serveHTTP(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return ln.Addr().String()
}

func TestRequestsAreWholeAndDistinct(t *testing.T) {
	for name, make := range map[string]func(b []byte, i int) []byte{
		"signed": func(b []byte, i int) []byte { return signedRequest(b, saleID, i) },
		"bare":   bareRequest, "browser": browserRequest,
	} {
		a, b := make(nil, 1), make(nil, 2)
		if !bytes.HasSuffix(a, []byte("\r\n\r\n")) || bytes.Count(a, []byte("\r\n\r\n")) != 1 || bytes.Equal(a, b) {
			t.Errorf("%s: %q and %q", name, a, b)
		}
	}
}

func TestStageClearsLastFirstAndIsThenEmpty(t *testing.T) {
	s := &stage{}
	var order []int
	for i := range 3 {
		s.Cleanup(func() { order = append(order, i) })
	}
	dir := s.TempDir()
	s.clear()
	s.clear()
	if fmt.Sprint(order) != "[2 1 0]" {
		t.Errorf("order %v", order)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory still exists: %v", err)
	}
}

func TestStartReportsTheOutputOfAnExitedProgram(t *testing.T) {
	s := &stage{}
	t.Cleanup(s.clear)
	p := s.start(nil, "sh", "-c", "echo no such flag; exit 2")
	if err := await(p, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error %v", err)
	}
}

// TestEveryContestRuns runs one short round of each contest, with all checks, so that none of them breaks unnoticed.
func TestEveryContestRuns(t *testing.T) {
	skipLong(t)
	for _, c := range contests {
		t.Run(c.name, func(t *testing.T) {
			s := &stage{}
			t.Cleanup(s.clear)
			results, err := c.of(s, settings{seconds: time.Second}).hold(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			printTable(io.Discard, results)
			for _, r := range results {
				if median(r.ratios) <= 0 || median(r.oursEach) <= 0 || median(r.baselineEach) <= 0 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// The workers of a busy edge may publish their counts late.
func TestCountsAreAwaited(t *testing.T) {
	var reads atomic.Int64
	serve := func(text func() string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text())
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	h := deployment{
		at: backend{admin: serve(func() string {
			return "sluice_api_purchases_total{outcome=\"accepted\"} 3\nsluice_api_purchases_total{outcome=\"sold_out\"} 4\n"
		})},
		status: serve(func() string {
			n := 0
			if reads.Add(1) > 200 {
				n = 5
			}
			return fmt.Sprintf("sluice_edge_cached_refusals_total{state=\"sold_out\"} %d\n", n)
		}),
	}
	got, err := h.judgedAfter(t.Context(), 12)
	if want := (outcomes{3, 4, 5}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestMemoryIsMeasured(t *testing.T) {
	skipLong(t)
	s := &stage{}
	t.Cleanup(s.clear)
	f, err := weigh(context.WithoutCancel(t.Context()), s, 20_000, true)
	if err != nil {
		t.Fatal(err)
	}
	// At least the bytes themselves: 24 of the buyer and 18 of the id; a dedup key of 40 and a value of 35; a
	// message of 60.
	if f.buyers < 42 || f.dedup < 75 || f.ready < 50 || f.buyers+f.dedup+f.ready > 1000 {
		t.Errorf("%+v", f)
	}
}

// A program may check that its port is free with a listener that it closes again; only a response shows that it serves.
func TestAwaitWaitsForAResponse(t *testing.T) {
	s := &stage{}
	t.Cleanup(s.clear)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answered atomic.Bool
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { answered.Store(true) })}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		if first, err := ln.Accept(); err == nil {
			_ = first.Close()
		}
		_ = server.Serve(ln)
	}()
	if err := await(s.start(nil, "sleep", "60"), ln.Addr().String()); err != nil || !answered.Load() {
		t.Errorf("error %v, answered %v", err, answered.Load())
	}
}
