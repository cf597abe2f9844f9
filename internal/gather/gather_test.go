package gather_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice/internal/gather"
)

const limit, size = 2, 16

// turn is one goroutine of a caller.
type turn struct {
	gather.Turn
	group []int
	pause bool
}

// Every request is in exactly one group, oldest first, in any interleaving of turns. At most Limit groups are in
// flight, and a turn is in progress while a request waits.
func TestEveryRequestIsInOneGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &gather.Queue[int]{Limit: limit, Size: size}
		var turns []*turn
		added, taken := 0, 0
		next := func(one *turn) {
			one.group = q.Next(&one.Turn, one.group[:0])
			if len(one.group) == 0 {
				turns = slices.DeleteFunc(turns, func(o *turn) bool { return o == one })
			}
			if len(one.group) > size {
				t.Fatalf("a group of %d requests", len(one.group))
			}
			for _, n := range one.group {
				if n != taken {
					t.Fatalf("request %d was taken, want %d", n, taken)
				}
				taken++
			}
		}
		steps := rapid.IntRange(1, 300).Draw(t, "steps")
		for range steps {
			if len(turns) == 0 || rapid.Bool().Draw(t, "add") {
				for range rapid.SampledFrom([]int{1, 1, 5, 20}).Draw(t, "requests") {
					if q.Add(added) {
						turns = append(turns, &turn{})
					}
					added++
				}
			} else {
				one := rapid.SampledFrom(turns).Draw(t, "turn")
				if len(one.group) > 0 && !one.pause {
					one.pause = q.Done(&one.Turn, len(one.group))
				}
				if !one.pause || rapid.Bool().Draw(t, "the pause ends") {
					one.pause = false
					next(one)
				}
			}
			if len(turns) > limit {
				t.Fatalf("%d turns", len(turns))
			}
			if q.Len() != added-taken || q.Len() > 0 && len(turns) == 0 || q.Idle() != (len(turns) == 0) {
				t.Fatalf("%d requests wait, %d were added and %d taken, %d turns", q.Len(), added, taken, len(turns))
			}
		}
	})
}

// While a turn gathers, no request starts a turn, and other turns end.
func TestOneTurnGathersAlone(t *testing.T) {
	q := &gather.Queue[int]{Limit: limit, Size: size}
	add := func(n int) (starts int) {
		for i := range n {
			if q.Add(i) {
				starts++
			}
		}
		return starts
	}
	var first, second gather.Turn
	if starts := add(4); starts != 2 {
		t.Fatalf("%d turns started", starts)
	}
	n := len(q.Next(&first, nil))
	if !q.Done(&first, n) {
		t.Fatalf("after a group of %d the turn does not pause", n)
	}
	if starts := add(5); starts != 0 {
		t.Errorf("%d turns started while one gathers", starts)
	}
	if got := q.Next(&second, nil); len(got) != 0 {
		t.Errorf("another turn took %d requests", len(got))
	}
	if got := q.Next(&first, nil); len(got) != 5 {
		t.Errorf("the turn gathered %d requests, want 5", len(got))
	}
	if q.Done(&first, 3) {
		t.Error("the turn pauses after a group of 3")
	}
	if starts := add(1); starts != 1 {
		t.Error("no second turn starts after the gathering")
	}
}

// Few requests and groups of half the size do not pause.
func TestPauseDependsOnTheGroup(t *testing.T) {
	for n, want := range map[int]bool{1: false, 3: false, 4: true, 7: true, 8: false, 16: false} {
		q := &gather.Queue[int]{Limit: limit, Size: size}
		for i := range n {
			q.Add(i)
		}
		var one gather.Turn
		if got := q.Done(&one, len(q.Next(&one, nil))); got != want {
			t.Errorf("after a group of %d: pause %v", n, got)
		}
	}
}
