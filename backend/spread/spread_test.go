package spread

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The vectors are a contract: orders are assigned to segments by Home as long as their sale exists.
func TestHomeIsStable(t *testing.T) {
	for _, c := range []struct {
		buyer string
		k     int
		want  int
	}{{"ann", 1, 0}, {"ann", 0, 0}, {"ann", 8, 3}, {"bob", 8, 0}, {"", 1000, 342}, {"käufer", 1000, 497}} {
		if got := Home(c.buyer, c.k); got != c.want {
			t.Errorf("Home(%q, %d) = %d, want %d", c.buyer, c.k, got, c.want)
		}
	}
}

func TestHomeDividesBuyersEvenly(t *testing.T) {
	for _, names := range []string{"user-%d", "%d", "00000000-0000-4000-8000-%012d"} {
		for _, k := range []int{2, 7, 64, 1000} {
			const buyers = 100_000
			count := make([]float64, k)
			for i := range buyers {
				count[Home(fmt.Sprintf(names, i), k)]++
			}
			mean, chi := buyers/float64(k), 0.0
			for _, n := range count {
				chi += (n - mean) * (n - mean) / mean
			}
			// The statistic has mean k-1 and variance 2(k-1).
			if limit := float64(k-1) + 5*math.Sqrt(2*float64(k-1)); chi > limit {
				t.Errorf("%s over %d segments: chi-squared %.0f, above %.0f", names, k, chi, limit)
			}
		}
	}
}

func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units, k := rapid.Int64Range(0, 1_000_000).Draw(t, "units"), rapid.IntRange(1, 1000).Draw(t, "k")
		shares := Divide(units, k, rapid.Int64Range(0, 5000).Draw(t, "first"))
		sum, least, most := int64(0), shares[0], shares[0]
		for _, n := range shares {
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum != units || most-least > 1 || len(shares) != k {
			t.Fatalf("shares from %d to %d with sum %d", least, most, sum)
		}
	})
	if shares := Divide(1, 3, 5); shares[2] != 1 {
		t.Errorf("Divide(1, 3, 5) = %v", shares)
	}
}

func TestValidateSpread(t *testing.T) {
	for _, c := range []struct {
		k, shards int
		valid     bool
	}{{1, 0, true}, {1, 1, true}, {8, 8, true}, {1000, 1000, true}, {0, 1, false}, {9, 8, false}, {1001, 2000, false}} {
		if err := ValidateSpread(c.k, c.shards); (err == nil) != c.valid {
			t.Errorf("ValidateSpread(%d, %d) = %v", c.k, c.shards, err)
		}
	}
}

func drawLevels(t *rapid.T) []Level {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Level {
		return Level{
			Left: rapid.Int64Range(0, 100).Draw(t, "left"), Rate: rapid.Float64Range(0, 50).Draw(t, "rate"),
			Waiting: rapid.Int64Range(0, 3).Draw(t, "waiting"), Busy: rapid.Bool().Draw(t, "busy"),
		}
	}), 1, 12).Draw(t, "levels")
}

func TestPlanMovesOnlyWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		gives, gets := map[int]bool{}, map[int]bool{}
		for _, m := range Plan(levels, time.Second) {
			from, to := levels[m.From], levels[m.To]
			if gives[m.From] || from.Busy || to.Busy {
				t.Fatalf("%+v: the source is used twice, or a segment is busy", m)
			}
			gives[m.From], gets[m.To] = true, true
			if m.Units < 1 || m.Units > (from.Left+1)/2 || to.Rate == 0 && to.Waiting == 0 {
				t.Fatalf("%+v from %+v to %+v", m, from, to)
			}
		}
		for i := range gives {
			if gets[i] {
				t.Fatalf("segment %d gives and gets units", i)
			}
		}
	})
}

// Whenever a purchase waits and another segment has units, at least one unit moves to a purchase that waits.
func TestPlanServesWaitingPurchases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := drawLevels(t)
		waits, free := false, false
		for i := range levels {
			if levels[i].Left > 0 {
				levels[i].Waiting = 0
			}
			waits = waits || !levels[i].Busy && levels[i].Waiting > 0
			free = free || !levels[i].Busy && levels[i].Left > 0
		}
		served := false
		for _, m := range Plan(levels, time.Second) {
			served = served || levels[m.To].Waiting > 0
		}
		if waits && free && !served {
			t.Fatalf("no purchase that waits gets a unit of %+v", levels)
		}
	})
}

func TestPieces(t *testing.T) {
	for name, c := range map[string]struct {
		levels []Level
		want   []Move
	}{
		"both last six seconds":                     {[]Level{{Left: 900, Rate: 100}, {Rate: 50}, {Left: 700}}, []Move{{0, 1, 300}}},
		"the last unit, for a purchase that waits":  {[]Level{{Left: 1, Rate: 5}, {Waiting: 1}}, []Move{{0, 1, 1}}},
		"not the last unit of a segment that sells": {[]Level{{Left: 1, Rate: 5}, {Rate: 5}}, nil},
		"nothing without demand":                    {[]Level{{Left: 1000}, {}}, nil},
		"from several sources":                      {[]Level{{Left: 40}, {Left: 30}, {Rate: 30}}, []Move{{0, 2, 20}, {1, 2, 15}}},
	} {
		if moves := Plan(c.levels, time.Second); !slices.Equal(moves, c.want) {
			t.Errorf("%s: moves %v, want %v", name, moves, c.want)
		}
	}
}
