package api

import (
	"fmt"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/desk"
	"sluice/backend/queue"
)

func TestQueueShowsDepthsAndRates(t *testing.T) {
	d := newDeskWorld()
	d.stats = queue.Stats{Ready: 1, Delayed: 2, Leased: 3, Leases: 4, Dead: 5, OldestAge: 90 * time.Second}
	cfg := d.config()
	now := time.Unix(1000, 0)
	cfg.Now = func() time.Time { return now }
	app, err := NewOperator(cfg)
	s := serve(t, app, err)
	depths := `{"ready":1,"delayed":2,"leased":3,"leases":4,"dead":5,"oldest_age_seconds":90,`
	if a := s.operate("GET", "/admin/v1/queue", ""); a.body != depths+`"accepted_per_second":null,"ordered_per_second":null,"drain_seconds":3}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	now = now.Add(10 * time.Second)
	live := *d.view.Live
	live.Accepted += 50
	d.view.Live, d.view.Sold = &live, d.view.Sold+20
	if a := s.operate("GET", "/admin/v1/queue", ""); a.body != depths+`"accepted_per_second":5,"ordered_per_second":2,"drain_seconds":3}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRatesCompareOnlyWhatIsComparable(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRates(func() time.Time { return now })
	count := func(after time.Duration, accepted, ordered int64) string {
		now = now.Add(after)
		v := desk.View{Sold: ordered}
		if accepted >= 0 {
			v.Live = &admission.View{Accepted: accepted}
		}
		a, o := r.since([]desk.View{v})
		show := func(f *float64) string {
			if f == nil {
				return "?"
			}
			return fmt.Sprint(*f)
		}
		return show(a) + " " + show(o)
	}
	for i, row := range []struct {
		after             time.Duration
		accepted, ordered int64
		want              string
	}{
		{0, 100, 50, "? ?"},
		{500 * time.Millisecond, 200, 60, "? ?"}, // too soon
		{500 * time.Millisecond, 300, 70, "200 20"},
		{500 * time.Millisecond, 450, 85, "233.33333333333334 23.333333333333332"}, // since the first
		{time.Second, -1, 100, "? 20"},                                             // without Redis
		{time.Second, 900, 90, "? 0"},                                              // never below 0
		{2 * time.Minute, 1000, 200, "? ?"},                                        // too long ago
		{2 * time.Second, 1010, 204, "5 2"},
	} {
		if got := count(row.after, row.accepted, row.ordered); got != row.want {
			t.Errorf("row %d: %s, want %s", i, got, row.want)
		}
	}
}
