package spread

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var table = flag.Bool("table", false, "print the table of docs/scale.md")

const tableStart, tableEnd = "<!-- make spread -->\n", "<!-- end of make spread -->\n"

// scenarios are the rows of the table.
func scenarios() []scenario {
	var all []scenario
	for _, c := range crowds {
		for _, k := range []int{2, 8, 64, 256, 1000} {
			all = append(all, scenario{c, k, 100_000})
		}
	}
	for _, stock := range []int64{10_000, 1000} {
		all = append(all, scenario{crowds[0], 1000, stock}, scenario{crowds[1], 1000, stock})
	}
	return all
}

type scenario struct {
	crowd crowd
	k     int
	stock int64
}

// demand is the number of requests per unit. The crowd exceeds the stock only slightly, so that units can be stranded.
const demand = 1.2

func (s scenario) row(t *testing.T) string {
	alone := run(s.crowd, s.k, s.stock, demand, false, 1)
	r := run(s.crowd, s.k, s.stock, demand, true, 1)
	if r.Unsold != 0 {
		t.Errorf("%s, %d segments: %d of %d units were not sold", s.crowd.name, s.k, r.Unsold, s.stock)
	}
	return fmt.Sprintf("| %s | %d | %d | %d (%.1f%%) | %d | %d (%.1f%%) | %.1f%% | %d ms | %d |\n",
		s.crowd.name, s.k, s.stock, alone.Unsold, percent(alone.Unsold, s.stock),
		r.Moves, r.Moved, percent(r.Moved, s.stock), percent(int64(r.Waited), int64(r.Requests)),
		r.Longest.Milliseconds(), r.Refused)
}

func percent(part, of int64) float64 { return 100 * float64(part) / float64(of) }

// No unit is stranded in any crowd, and docs/scale.md has the results of this policy.
func TestRefillTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| requests | segments | stock | stranded without refill | moves | units moved " +
		"| purchases that waited | longest wait | 503 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range scenarios() {
		b.WriteString(s.row(t))
	}
	if *table {
		fmt.Fprint(os.Stdout, b.String())
		return
	}
	text, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), tableStart)
	published, _, found := strings.Cut(rest, tableEnd)
	if !found || published != b.String() {
		t.Errorf("docs/scale.md differs from the simulation; run make spread and copy the table:\n%s", b.String())
	}
}

// If the demand is below the stock, every request gets a unit, in all crowds.
func TestDemandBelowTheStock(t *testing.T) {
	for _, c := range crowds {
		r := run(c, 64, 10_000, 0.9, true, 2)
		if r.Unsold != 1000 {
			t.Errorf("%s: %d units are left of 10000 after 9000 requests", c.name, r.Unsold)
		}
	}
}
