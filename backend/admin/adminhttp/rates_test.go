package adminhttp

import (
	"fmt"
	"testing"
	"time"

	"sluice/backend/admin"
	"sluice/backend/admission"
	"sluice/backend/queue"
)

func TestQueueShowsDepthsAndRates(t *testing.T) {
	d := newFakeService()
	d.stats = queue.Stats{Ready: 1, Delayed: 2, Leased: 3, Leases: 4, Dead: 5, OldestAge: 90 * time.Second}
	d.second = queue.Stats{Ready: 10, Dead: 1, OldestAge: 100 * time.Second}
	cfg := d.config()
	cfg.MaxReady = 500
	now := time.Unix(1000, 0)
	cfg.Server.Now = func() time.Time { return now }
	s := serve(t, cfg)
	depths := `{"ready":11,"delayed":2,"leased":3,"leases":4,"dead":6,"oldest_age_seconds":100,`
	shards := `"drain_seconds":3,"max_ready":500,"shards":[` +
		`{"shard":0,"ready":1,"delayed":2,"leased":3,"leases":4,"dead":5,"oldest_age_seconds":90,"drained_per_second":7,"drain_seconds":3},` +
		`{"shard":1,"ready":10,"delayed":0,"leased":0,"leases":0,"dead":1,"oldest_age_seconds":100,"drained_per_second":null,"drain_seconds":null}]}` + "\n"
	if a := s.operate(
		"GET",
		"/admin/v1/queue",
		"",
	); a.Body != depths+`"accepted_per_second":null,"ordered_per_second":null,`+shards {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	now = now.Add(10 * time.Second)
	live := *d.view.Live
	live.Accepted += 50
	d.view.Live, d.view.Sold = &live, d.view.Sold+20
	if a := s.operate(
		"GET",
		"/admin/v1/queue",
		"",
	); a.Body != depths+`"accepted_per_second":5,"ordered_per_second":2,`+shards {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestRatesCompareOnlyWhatIsComparable(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRates(func() time.Time { return now })
	count := func(after time.Duration, accepted, ordered int64) string {
		now = now.Add(after)
		v := admin.View{Sold: ordered}
		if accepted >= 0 {
			v.Live = &admission.View{Accepted: accepted}
		}
		a, o := r.update([]admin.View{v})
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
