// Package queuebench compares the drivers of the order queue in one run: throughput of accepting and draining, latency,
// cost in Redis, and messages lost when a worker or the server is killed. Orders pass the product's admission. Messages
// are not written to SQL. An in-process queue is the baseline of the comparison.
package queuebench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Options selects the load.
type Options struct {
	RedisURL string        // an empty Redis; "" starts one; only a started one is killed
	Orders   int           // accepted and drained in each round, at least 1000
	Rounds   int           // interleaved rounds, at least 1; results are medians
	Rate     int           // orders per second while latency is measured, at least 1
	Span     time.Duration // duration of the latency measurement
}

// The load of a run.
const (
	Takers = 4   // goroutines that drain a queue concurrently
	Batch  = 500 // messages per take
	buyers = 64  // concurrent purchases
)

// Row holds the results of one driver.
type Row struct {
	Driver   string        `json:"driver"`
	Accepted float64       `json:"accepted_per_second"`
	Drained  float64       `json:"drained_per_second"`       // by Takers goroutines
	Alone    float64       `json:"drained_alone_per_second"` // by one goroutine
	P50      time.Duration `json:"p50_ns"`                   // from the purchase request to the take
	P99      time.Duration `json:"p99_ns"`
	Memory   float64       `json:"bytes_per_message"`     // in Redis, or in this process
	CPU      time.Duration `json:"cpu_per_message_ns"`    // of Redis, to accept and drain a message; 0: no Redis
	AOF      float64       `json:"log_bytes_per_message"` // in the append-only file; below 0: none
	Worker   Loss          `json:"worker_killed"`         // while it holds a batch of 100 of 1000
	Server   *Loss         `json:"server_killed"`         // nil: not measured, the run did not start this Redis
	InOrder  bool          `json:"in_order"`              // one taker gets messages in the order of acceptance
	// share of messages that Takers goroutines get after a later one
	Overtaken float64 `json:"overtaken"`
	Replayed  bool    `json:"replayed"`                      // a repeated take returns the same batch
	Kept      int64   `json:"entries_after_acknowledgement"` // entries that can still be read
}

// Loss counts the messages affected by a killed process.
type Loss struct {
	Messages int `json:"messages"`
	Lost     int `json:"lost"`
	Twice    int `json:"given_out_twice"`
}

// Run measures the list, the stream and the in-process queue, and calls progress with a line before each step. It
// returns ErrNotEmpty when the Redis of o.RedisURL holds keys.
func Run(ctx context.Context, o Options, progress func(string)) ([]Row, error) {
	if o.Orders < 1000 || o.Rounds < 1 || o.Rate < 1 || o.Span < 0 {
		return nil, fmt.Errorf("queuebench: Orders must be at least 1000, Rounds and Rate at least 1")
	}
	s, err := openServer(ctx, o.RedisURL)
	if err != nil {
		return nil, err
	}
	defer s.close()
	subjects := []subject{
		&redisSubject{server: s, name: "list"},
		&redisSubject{server: s, name: "stream", stream: true},
		&memorySubject{},
	}
	rows, rounds := make([]Row, len(subjects)), make([][]Row, len(subjects))
	for n := range o.Rounds + 1 { // the first round warms up and does not count
		for i, sub := range subjects {
			progress(fmt.Sprintf("round %d of %d: %s", n, o.Rounds, sub.label()))
			r, err := play(ctx, sub, o.Orders)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sub.label(), err)
			}
			if n > 0 {
				rounds[i] = append(rounds[i], r)
			}
		}
	}
	for i, sub := range subjects {
		progress("latency, crashes and order: " + sub.label())
		if rows[i], err = examine(ctx, sub, o); err != nil {
			return nil, fmt.Errorf("%s: %w", sub.label(), err)
		}
		rows[i].setMedians(rounds[i])
	}
	return rows, nil
}

// setMedians sets what play measures to the median of the rounds.
func (r *Row) setMedians(rounds []Row) {
	median := func(of func(Row) float64) float64 {
		all := make([]float64, len(rounds))
		for i := range rounds {
			all[i] = of(rounds[i])
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	r.Accepted = median(func(r Row) float64 { return r.Accepted })
	r.Drained = median(func(r Row) float64 { return r.Drained })
	r.Alone = median(func(r Row) float64 { return r.Alone })
	r.Memory = median(func(r Row) float64 { return r.Memory })
	r.AOF = median(func(r Row) float64 { return r.AOF })
	r.CPU = time.Duration(median(func(r Row) float64 { return float64(r.CPU) }))
	r.Overtaken = median(func(r Row) float64 { return r.Overtaken })
}
