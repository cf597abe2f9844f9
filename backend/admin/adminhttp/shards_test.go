package adminhttp

import (
	"context"
	"testing"

	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
)

// fakeShards returns a shard of a cluster, and one that does not answer.
func fakeShards(context.Context) []guard.Status {
	return []guard.Status{
		{Shard: 0, Slot: 13907, Master: "10.0.0.3:6379", Verified: true, Generation: 4, Sales: 2},
		{Shard: 1, Slot: -1, Reason: "no answer", Sales: -1},
	}
}

// onlyFirst is a queue with an unavailable second shard.
type onlyFirst struct{ *fakeService }

func (q onlyFirst) ByShard(context.Context) ([]*queue.Stats, error) {
	return []*queue.Stats{&q.stats, nil}, nil
}

func TestShardsShowServerAndCounts(t *testing.T) {
	d := newFakeService()
	d.stats = queue.Stats{Ready: 1, Delayed: 2, Leased: 3, Leases: 4, Dead: 5}
	cfg := d.config()
	cfg.Queue = onlyFirst{d}
	want := `{"shards":[{"shard":0,"slot":13907,"master":"10.0.0.3:6379","verified":true,"generation":4,"sales":2,` +
		`"ready":1,"leased":3,"dead":5},{"shard":1,"slot":null,"master":"","verified":false,"reason":"no answer",` +
		`"generation":0,"sales":null,"ready":null,"leased":null,"dead":null}]}` + "\n"
	if a := serve(t, cfg).operate("GET", "/admin/v1/shards", ""); a.Body != want {
		t.Errorf("%d %s\nwant %s", a.Status, a.Body, want)
	}
}
