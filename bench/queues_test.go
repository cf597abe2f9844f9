package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestAmongReportsUnknownNames(t *testing.T) {
	all := []string{"a", "b", "c"}
	for given, want := range map[string][]string{"": all, "b": {"b"}, "c,a": {"c", "a"}} {
		if got, err := among("--only", given, all); err != nil || !slices.Equal(got, want) {
			t.Errorf("among %q: %v, %v", given, got, err)
		}
	}
	var wrong usageError
	if _, err := among("--only", "a,d", all); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "a,b,c") {
		t.Errorf("an unknown part: %v", err)
	}
}

func TestPercentiles(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	if p50, p99 := percentiles(hundred); p50 != 51 || p99 != 100 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if p50, p99 := percentiles([]float64{7}); p50 != 7 || p99 != 7 {
		t.Errorf("percentiles of one value: %v, %v", p50, p99)
	}
}

func TestRowsVerdictNeedsBothQuantiles(t *testing.T) {
	for _, c := range []struct {
		name     string
		p50, p99 []float64
		want     string
	}{
		{"raw streams", []float64{0.1}, []float64{0.1}, "for orientation"},
		{asynqAsItIs, []float64{0.1, 0.1, 9}, []float64{0.2, 0.1, 0.2}, "reached"},
		{asynqAsItIs, []float64{0.1}, []float64{0.21}, "missed"},
		{asynqAsItIs, []float64{0.3}, []float64{0.1}, "missed"},
	} {
		if got := rowsVerdict(c.name, c.p50, c.p99); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, %v and %v: %q", c.name, c.p50, c.p99, got)
		}
	}
}
