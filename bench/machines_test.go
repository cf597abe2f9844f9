package main

import (
	"os"
	"strings"
	"testing"
)

func TestFleetIsLimitedByItsSlowestPart(t *testing.T) {
	f := fleet{cores: 2, edge: 50, backend: 40, redis: 20, worker: 10, rows: 100_000, scaling: 1}
	for n, want := range map[int]fleetSize{
		3:    {33_333, 33_333, 1, "processors"},                  // 4 processors of 120 µs
		10:   {150_000, 100_000, 3, "processors"},                // PostgreSQL writes fewer
		1000: {3_200_000, 100_000, 64, "Redis: the most shards"}, // of 50,000 each
	} {
		got := f.of(n)
		got.accepted, got.rows = float64(int(got.accepted)), float64(int(got.rows))
		if got != want {
			t.Errorf("%d machines: %+v, want %+v", n, got, want)
		}
	}
}

func TestMachinesRejectsNumbersItCannotCompute(t *testing.T) {
	for _, args := range []string{"--machines 2", "--machines 0", "--machines ten", "--scaling 1.1", "--edge 0"} {
		if err := machines(t.Context(), nil, strings.Fields(args)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

// The documents contain the tables that the command prints, and the command's defaults are numbers of the documents.
func TestMachinesTableIsPublished(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	scale, benchmarks := read("scale.md"), read("benchmarks.md")
	var b strings.Builder
	measuredFleet.print(&b, []int{1, 3, 10, 30, 100})
	_, rest, _ := strings.Cut(scale, "<!-- make machines -->\n")
	if published, _, found := strings.Cut(rest, "<!-- end of make machines -->\n"); !found || published != b.String() {
		t.Errorf("docs/scale.md differs; run make machines and copy the tables:\n%s", b.String())
	}
	for figure, text := range map[string]string{
		"| edge | 35.4 (": benchmarks, "| backend | 28.1 (": benchmarks, "| Redis | 9.8 (": benchmarks,
		"| worker | 4.0 (": benchmarks, "| 126,589/s |": benchmarks, "| 12,838/s |": benchmarks, "| 12421 | 0.92 |": scale,
	} {
		if !strings.Contains(text, figure) {
			t.Errorf("no %q in the document that the default comes from", figure)
		}
	}
}
