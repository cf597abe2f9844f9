package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// Every side with batches handles each message once.
func TestBatchesOfOneAreDrained(t *testing.T) {
	const n = 2000
	s := &stage{}
	t.Cleanup(s.clear)
	d := newDrains(s, n)
	d.batch = 1
	for name, run := range map[string]measurement{
		"list": d.list(listSetting{4, 1}), "streams": d.stream(4), "rmq": d.rmq(rmqSetting{4, 200}, n),
	} {
		if perSecond, err := run(t.Context()); err != nil || perSecond <= 0 {
			t.Errorf("%s: %v/s, %v", name, perSecond, err)
		}
	}
}

// TestBatchesOfOneRun runs one short round of each measurement, with all checks, so that none of them breaks unnoticed.
func TestBatchesOfOneRun(t *testing.T) {
	skipLong(t)
	for name, run := range map[string]func(*stage) error{
		"row": func(s *stage) error { return acceptedToRow(t.Context(), s, 1, 0.5, "everysec", 1) },
		"events": func(s *stage) error {
			return measureEvents(t.Context(), s, strings.Fields("--batch 1 --rounds 1 --seconds 0.5"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stage{}
			t.Cleanup(s.clear)
			if err := run(s); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOrdersOneByOneHaveQuantiles(t *testing.T) {
	skipLong(t)
	s := &stage{}
	t.Cleanup(s.clear)
	results, err := orders(s, settings{seconds: time.Second, batch: 1}).hold(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	printTable(io.Discard, results)
	for _, r := range results {
		if median(r.ratios) <= 0 || r.oursWait == "" {
			t.Errorf("%+v", r)
		}
		if measured := r.baseline != riverBacklog; (r.baselineWait != "") != measured {
			t.Errorf("%s: p50 and p99 %q", r.baseline, r.baselineWait)
		}
	}
}
