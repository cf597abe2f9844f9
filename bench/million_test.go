package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTenthsDivideASaleByItsOrders(t *testing.T) {
	// 100 orders/s for ten seconds, and then 50; 200 µs of the first part for each, and 10 ms of the second at the end.
	samples := []saleSample{
		{at: 0, cpu: []float64{0, 0}},
		{at: 10, accepted: 1000, cpu: []float64{200_000, 0}},
		{at: 30, accepted: 2000, cpu: []float64{400_000, 0}},
	}
	tenths := tenthsOf(samples, saleSample{at: 31, accepted: 2000, cpu: []float64{400_000, 10_000}})
	for i, got := range tenths {
		rate, after := 100.0, 0.0
		if i >= 5 {
			rate = 50
		}
		if i == 9 {
			after = 50
		}
		if !near(got.perSecond, rate) || !near(got.cpu[0], 200) || !near(got.cpu[1], after) || !near(got.sum(), 200+after) {
			t.Errorf("tenth %d: %+v", i+1, got)
		}
	}
}

func TestGrowthIsThatOfALineThroughAllValues(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{100, 100, 100, 100}, 0},
		{[]float64{100, 110, 120, 130, 140, 150, 160, 170, 180, 190}, 0.9},
		{[]float64{100, 100, 100, 900, 100, 100, 100, 100, 100, 20}, 0}, // two values far from the others
		{[]float64{10, 9, 8, 7, 6}, -0.4},
		{[]float64{0, 0, 0}, 0},
	} {
		if got := growth(c.values); !near(got, c.want) {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// TestMillionRuns sells a small sale with all checks: each unit is sold once and the audit is balanced.
func TestMillionRuns(t *testing.T) {
	skipLong(t)
	s := &stage{}
	t.Cleanup(s.clear)
	of := costCase{of: "order", edge: "nginx", fsync: "everysec", tokens: "new", connections: 16}
	m := &bigSale{costDeployment: newCostDeployment(s, settings{}, of, s.build()), units: 5000}
	if err := m.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last := m.samples[len(m.samples)-1]; last.accepted != 5000 || m.load.answers < 5000-16 {
		t.Errorf("%v accepted, %d answers", last.accepted, m.load.answers)
	}
	// At least the bytes of a message.
	if m.entry < 50 || m.wal <= 0 || m.after["orders"].table <= m.before["orders"].table {
		t.Errorf("%v bytes of an order in the queue, WAL %v, %+v", m.entry, m.wal, m.after)
	}
	var b bytes.Buffer
	m.print(&b)
	for _, want := range []string{"5,000 units sold", "| 10 |", "| growth |", "| Redis, while it waits |", "| `outbox` |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if svg := drawSale(m.samples); !strings.Contains(svg, `class="line accepted"`) {
		t.Errorf("no line in\n%s", svg)
	}
}

func TestMillionRejectsFlagsBeforeItStartsAnything(t *testing.T) {
	noDirectory := filepath.Join(t.TempDir(), "no", "plot.svg")
	for _, args := range [][]string{{"--units", "999"}, {"--connections", "4001"}, {"--out", noDirectory}} {
		if err := million(t.Context(), nil, args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	if _, err := os.Stat(noDirectory); err == nil {
		t.Error("the file exists")
	}
}
