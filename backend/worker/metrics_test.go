package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/worker"
)

func TestCountersCountUnderTheirPublishedNames(t *testing.T) {
	r := prometheus.NewRegistry()
	c := worker.NewCounters(r)
	c.BatchWritten(7, time.Second)
	c.Failed(worker.KindRejected)
	c.LeaseLost()
	c.Reclaimed(3)
	c.Paused(worker.KindUnavailable, 1)
	want := `
# HELP sluice_queue_reclaimed_total Messages requeued because the lease of their batch expired.
# TYPE sluice_queue_reclaimed_total counter
sluice_queue_reclaimed_total 3
# HELP sluice_worker_batch_orders Orders per transaction.
# TYPE sluice_worker_batch_orders histogram
sluice_worker_batch_orders_bucket{le="1"} 0
sluice_worker_batch_orders_bucket{le="2"} 0
sluice_worker_batch_orders_bucket{le="5"} 0
sluice_worker_batch_orders_bucket{le="10"} 1
sluice_worker_batch_orders_bucket{le="20"} 1
sluice_worker_batch_orders_bucket{le="50"} 1
sluice_worker_batch_orders_bucket{le="100"} 1
sluice_worker_batch_orders_bucket{le="200"} 1
sluice_worker_batch_orders_bucket{le="500"} 1
sluice_worker_batch_orders_bucket{le="1000"} 1
sluice_worker_batch_orders_bucket{le="+Inf"} 1
sluice_worker_batch_orders_sum 7
sluice_worker_batch_orders_count 1
# HELP sluice_worker_paused_loops Loops that wait for the store (unavailable) or the queue (queue).
# TYPE sluice_worker_paused_loops gauge
sluice_worker_paused_loops{kind="queue"} 0
sluice_worker_paused_loops{kind="unavailable"} 1
# HELP sluice_worker_batches_total Transactions that wrote orders.
# TYPE sluice_worker_batches_total counter
sluice_worker_batches_total 1
# HELP sluice_worker_failures_total Failures by kind: rejected, error, unavailable, queue.
# TYPE sluice_worker_failures_total counter
sluice_worker_failures_total{kind="error"} 0
sluice_worker_failures_total{kind="queue"} 0
sluice_worker_failures_total{kind="rejected"} 1
sluice_worker_failures_total{kind="unavailable"} 0
# HELP sluice_worker_lost_leases_total Leases that expired while this worker was writing the batch.
# TYPE sluice_worker_lost_leases_total counter
sluice_worker_lost_leases_total 1
# HELP sluice_worker_orders_written_total Orders written to SQL, including repeated writes.
# TYPE sluice_worker_orders_written_total counter
sluice_worker_orders_written_total 7
`
	names := []string{
		"sluice_queue_reclaimed_total",
		"sluice_worker_batches_total",
		"sluice_worker_failures_total",
		"sluice_worker_lost_leases_total",
		"sluice_worker_orders_written_total",
		"sluice_worker_batch_orders",
		"sluice_worker_paused_loops",
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
