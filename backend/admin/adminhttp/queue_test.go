package adminhttp

import (
	"strings"
	"testing"
	"time"

	"sluice/backend/queue"
)

func TestQueueShowsCountsAndDrain(t *testing.T) {
	d := newFakeService()
	d.stats = queue.Stats{Ready: 1, Delayed: 2, Leased: 3, Leases: 4, Dead: 5, OldestAge: 90 * time.Second}
	d.second = queue.Stats{Ready: 10, Dead: 1, OldestAge: 100 * time.Second}
	cfg := d.config()
	cfg.MaxReady = 500
	want := `{"ready":11,"delayed":2,"leased":3,"leases":4,"dead":6,"oldest_age_seconds":100,"drain_seconds":3,"max_ready":500,"shards":[` +
		`{"shard":0,"ready":1,"delayed":2,"leased":3,"leases":4,"dead":5,"oldest_age_seconds":90,"drain_seconds":3,"drained_per_second":7},` +
		`{"shard":1,"ready":10,"delayed":0,"leased":0,"leases":0,"dead":1,"oldest_age_seconds":100,"drain_seconds":null,"drained_per_second":null}]}` + "\n"
	if a := serve(t, cfg).operate("GET", "/admin/v1/queue", ""); a.Body != want {
		t.Errorf("%d %s\nwant %s", a.Status, a.Body, want)
	}
}

func TestQueueNamesUnavailableShards(t *testing.T) {
	d := newFakeService()
	d.stats = queue.Stats{Ready: 1}
	cfg := d.config()
	cfg.Queue = onlyFirst{d}
	a := serve(t, cfg).operate("GET", "/admin/v1/queue", "")
	if !strings.Contains(a.Body, `{"ready":1,`) || !strings.Contains(a.Body, `"unavailable_shards":[1]`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
