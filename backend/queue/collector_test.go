package queue_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// countedShard is a shard with these counts, or one that does not respond.
type countedShard struct {
	queue.Shard
	stats *queue.Stats
}

func (s countedShard) Stats(context.Context) (queue.Stats, error) {
	if s.stats == nil {
		return queue.Stats{}, sale.ErrUnavailable
	}
	return *s.stats, nil
}

// A shard that cannot be counted is reported, and the gauges of the others remain.
func TestGaugesOfAnUnavailableShardAreMissing(t *testing.T) {
	const leases = "# HELP sluice_queue_leases Batches that workers hold.\n# TYPE sluice_queue_leases gauge\n"
	const up = "# HELP sluice_queue_up Whether the other gauges could be read.\n" +
		"# TYPE sluice_queue_up gauge\nsluice_queue_up "
	const first, second = `sluice_queue_leases{shard="0"} 1` + "\n", `sluice_queue_leases{shard="1"} 1` + "\n"
	down, one := countedShard{}, countedShard{stats: &queue.Stats{Leases: 1}}
	for name, row := range map[string]struct {
		shards queue.Shards
		want   string
	}{
		"all":  {queue.Shards{one, one}, leases + first + second + up + "1\n"},
		"one":  {queue.Shards{down, one}, leases + second + up + "0\n"},
		"none": {queue.Shards{down, down}, up + "0\n"},
	} {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(queue.NewCollector(row.shards, make(queue.Meters, 2), 100))
		err := testutil.GatherAndCompare(registry, strings.NewReader(row.want), "sluice_queue_leases", "sluice_queue_up")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
