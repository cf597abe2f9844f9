package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestCostCasesAreAllCombinations(t *testing.T) {
	got, err := costCases("order,page", "nginx,gateway", "always", "new,repeated", "1,64")
	if err != nil || len(got) != 2*2*2+2*2 { // a page has no token
		t.Fatalf("%v, %v", got, err)
	}
	if want := (costCase{"order", "gateway", "always", "repeated", 64}); !slices.Contains(got, want) {
		t.Errorf("%v lacks %v", got, want)
	}
	for _, wrong := range [][5]string{
		{"orders", "nginx", "no", "new", "1"}, {"order", "caddy", "no", "new", "1"}, {"order", "nginx", "yes", "new", "1"},
		{"order", "nginx", "no", "old", "1"}, {"order", "nginx", "no", "new", "0"}, {"order", "nginx", "no", "new", "many"},
	} {
		if got, err := costCases(wrong[0], wrong[1], wrong[2], wrong[3], wrong[4]); err == nil {
			t.Errorf("%v: %v", wrong, got)
		}
	}
}

func TestCostIsDividedByAnswers(t *testing.T) {
	before := []spent{{1e9, 2e9}, {0, 0}}
	after := []spent{{3e9, 3e9}, {5e8, 0}}
	c := newCostSample(100, before, after, 1000)
	if c.part(0) != 3000 || c.user[0] != 2000 || c.part(1) != 500 || c.part(4) != 0 || c.sum() != 3500 {
		t.Errorf("%+v", c)
	}
	var b bytes.Buffer
	half := costSample{perSecond: 200, user: []float64{1000, 750}, kernel: []float64{0, 0}}
	printCost(&b, costCase{of: "order"}, []*costSide{
		{name: "sluice", samples: []costSample{c}}, {name: "hello", samples: []costSample{half}},
	})
	for _, want := range []string{"3e+03", "x 2 (2..2)", "0.5 (0.5..0.5)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, &b)
		}
	}
}

// TestCostRuns runs one short round of each request, with all checks, so that the measurement does not break unnoticed.
func TestCostRuns(t *testing.T) {
	skipLong(t)
	for _, args := range []string{
		"--of order,status,page,refusal --tokens repeated --floor", "--edge gateway --fsync no --connections 1",
	} {
		s := &stage{}
		t.Cleanup(s.clear)
		if err := cost(t.Context(), s, append(strings.Fields(args), "--rounds", "1", "--seconds", "1")); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestSizesHaveTheAverage(t *testing.T) {
	for _, average := range []float64{1, 1.5, 12.4, 100} {
		size, sum := sizes(average), 0
		for range 1000 {
			n := size()
			if n < int(average) || n > int(average)+1 {
				t.Fatalf("%g on average: a size of %d", average, n)
			}
			sum += n
		}
		if sum != int(average*1000) {
			t.Errorf("%g on average: 1000 sizes are %d", average, sum)
		}
	}
}
