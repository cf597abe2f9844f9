package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRoundsAlternateTheOrderAndTheFirstDoesNotCount(t *testing.T) {
	var order []string
	calls := map[string]int{}
	measured := func(name string, perSecond ...float64) contestant {
		return contestant{name, func(context.Context) (float64, error) {
			order = append(order, name)
			calls[name]++
			return perSecond[calls[name]-1], nil
		}}
	}
	c := contest{
		contestants: []contestant{measured("a", 1, 30, 40, 90), measured("b", 1000, 10, 20, 30)},
		ratios:      []ratio{{"a of b", "a", "b", 3, 0}},
	}
	got, err := c.hold(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a b b a a b b a"; strings.Join(order, " ") != want {
		t.Errorf("order %v, want %s", order, want)
	}
	// Ratios of the rounds: 3, 2, 3. The ratio of the medians would be 2.
	r := got[0]
	if median(r.ratios) != 3 || slices.Min(r.ratios) != 2 || slices.Max(r.ratios) != 3 ||
		median(r.oursEach) != 40 || median(r.baselineEach) != 20 || len(r.ratios) != 3 {
		t.Errorf("result %+v", r)
	}
}

func TestOnlyMatchingRatiosAreMeasured(t *testing.T) {
	var ran []string
	who := func(name string) contestant {
		return contestant{name, func(context.Context) (float64, error) { ran = append(ran, name); return 1, nil }}
	}
	c := contest{
		contestants: []contestant{who("a"), who("b"), who("c"), who("d")},
		ratios:      []ratio{{"one", "a", "c", 0, 0}, {"one more", "b", "c", 0, 0}, {"two", "a", "d", 0, 0}},
	}
	for match, want := range map[string]string{"^one$": "a c c a", "one": "a b c c b a", "two": "a d d a", "none": ""} {
		ran = nil
		got, err := c.only(regexp.MustCompile(match)).hold(t.Context(), 1)
		if err != nil || strings.Join(ran, " ") != want ||
			slices.ContainsFunc(got, func(r result) bool { return !strings.Contains(r.name, strings.Trim(match, "^$")) }) {
			t.Errorf("%s: %v, %+v, %v", match, ran, got, err)
		}
	}
}

func TestHoldStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	c := contest{contestants: []contestant{{"a", func(context.Context) (float64, error) { return 0, broken }}}}
	if _, err := c.hold(t.Context(), 1); !errors.Is(err, broken) || !strings.Contains(err.Error(), "a") {
		t.Errorf("error %v", err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := slices.Clone(c.of)
		if got := median(c.of); got != c.want || !slices.Equal(c.of, before) {
			t.Errorf("median of %v is %v, want %v", before, got, c.want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		got          float64
		target, goal float64
		want         string
	}{
		{2, 0, 0, "for orientation"},
		{1.3, 1.3, 0, "reached"},
		{1.4, 1.3, 1.5, "reached (goal 1.5)"},
		{1.5, 1.3, 1.5, "reached, and the goal of 1.5"},
		{0.65, 1.3, 1.5, "missed by 50%"},
		{1.299, 1.3, 0, "missed by 1%"},
	} {
		r := result{ratio: ratio{target: c.target, goal: c.goal}, ratios: []float64{c.got}}
		if got := r.verdict(); got != c.want {
			t.Errorf("%+v: %q, want %q", r, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567.8: "1,234,568", -123: "-123", -1234: "-1,234",
	} {
		if got := number(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}
