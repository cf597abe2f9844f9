package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// windows counts as a map does that forgets nothing, and removes a user at the second turn after the last request.
func TestWindowsForgetOnlyWhatHasEnded(t *testing.T) {
	const period = 10 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		w, all := windows{period: period}, map[string]window{}
		turns, counted := 0, map[string]int{} // counted: the number of turns at the last request of a user
		now := time.Unix(1_800_000_000, 0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * time.Second)
			user := rapid.SampledFrom([]string{"ann", "bob", "cid"}).Draw(t, "user")
			want := all[user]
			if !now.Before(want.end) {
				want = window{end: now.Add(period)}
			}
			want.count++
			all[user] = want
			turned := w.turned
			if got := w.add(user, now); got != want {
				t.Fatalf("%s at %s: %+v, want %+v", user, now, got, want)
			}
			if w.turned != turned {
				turns++
			}
			counted[user] = turns
			for name, at := range counted {
				_, current := w.current[name]
				_, before := w.before[name]
				if held := current || before; held && at < turns-1 {
					t.Fatalf("the window of %s is held at turn %d; the last request was at turn %d", name, turns, at)
				}
			}
		}
	})
}

// A user may send as many requests in each window as the rate allows, and learns when the window ends.
func TestUserLimiterBeginsAnotherWindow(t *testing.T) {
	u, err := NewUserLimiter("2-S", nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for _, step := range []struct {
		after     time.Duration
		allowed   bool
		remaining int64
		end       time.Duration
	}{
		{0, true, 1, time.Second},
		{900 * time.Millisecond, true, 0, time.Second},
		{999 * time.Millisecond, false, 0, time.Second},
		{time.Second, true, 1, 2 * time.Second},
		{5 * time.Second, true, 1, 6 * time.Second},
	} {
		u.now = func() time.Time { return begin.Add(step.after) }
		got := u.Allow(t.Context(), "ann")
		want := LimitResult{
			Allowed: step.allowed, Limit: 2, Remaining: step.remaining, Period: time.Second, Reset: begin.Add(step.end),
		}
		if got != want {
			t.Errorf("after %v: %+v; want %+v", step.after, got, want)
		}
	}
}
