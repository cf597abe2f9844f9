// Package queuebench measures the drivers of the order queue side by side, through the product's own admission and queue: how fast they take in and give
// out, what they cost, and what becomes of messages when something dies. It never measures SQL: the messages are handed to nobody.
package queuebench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Options say what is measured. Zero fields take the defaults named here.
type Options struct {
	RedisURL string        // an empty Redis; "": one is started, and only that one can be killed
	Orders   int           // accepted and drained in each round; 50,000
	Rounds   int           // of accepting and draining, in turn; the median counts; 3
	Rate     int           // orders a second while latency is measured; 1000
	Span     time.Duration // for as long; 3 s
}

// Takers is how many goroutines empty a queue at once, and Batch how many messages each takes.
const (
	Takers = 4
	Batch  = 500
	buyers = 64 // who ask at once
)

// Row is what was measured of one driver.
type Row struct {
	Driver    string        `json:"driver"`
	Accepted  float64       `json:"accepted_per_second"`
	Drained   float64       `json:"drained_per_second"`       // by four takers
	Alone     float64       `json:"drained_alone_per_second"` // by one
	P50       time.Duration `json:"p50_ns"`                   // from the wish to buy until a taker has the order
	P99       time.Duration `json:"p99_ns"`
	Memory    float64       `json:"bytes_per_message"`             // of Redis, or of this process
	CPU       time.Duration `json:"cpu_per_message_ns"`            // of Redis to accept one and give it out; 0: no Redis
	AOF       float64       `json:"log_bytes_per_message"`         // in Redis's append-only file; below 0: there is none
	Worker    Loss          `json:"worker_killed"`                 // with a batch of 100 out of 1000
	Server    *Loss         `json:"server_killed"`                 // nil: not measured, because the Redis is not ours to kill
	InOrder   bool          `json:"in_order"`                      // one taker gets what was accepted first, first
	Overtaken float64       `json:"overtaken"`                     // share of messages that four takers get after a later one
	Replayed  bool          `json:"replayed"`                      // the same take again gives the same batch
	Kept      int64         `json:"entries_after_acknowledgement"` // that could be read again
}

// Loss is what became of messages when something died.
type Loss struct {
	Messages int `json:"messages"`
	Lost     int `json:"lost"`
	Twice    int `json:"given_out_twice"`
}

// Run measures list, stream and memory. tell gets a line now and then.
func Run(ctx context.Context, o Options, tell func(string)) ([]Row, error) {
	o = o.withDefaults()
	if o.Orders < 1000 || o.Rounds < 1 || o.Rate < 1 || o.Span < 0 {
		return nil, fmt.Errorf("at least 1000 orders, one round and one order a second are needed")
	}
	s, err := openServer(ctx, o.RedisURL)
	if err != nil {
		return nil, err
	}
	defer s.close()
	subjects := []subject{
		&redisSubject{server: s, name: "list"}, &redisSubject{server: s, name: "stream", stream: true}, &memorySubject{},
	}
	rows, rounds := make([]Row, len(subjects)), make([][]round, len(subjects))
	for n := range o.Rounds + 1 { // the first one warms up
		for i, sub := range subjects {
			tell(fmt.Sprintf("round %d of %d: %s", n, o.Rounds, sub.label()))
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
		tell("latency, crashes and order: " + sub.label())
		if rows[i], err = examine(ctx, sub, o); err != nil {
			return nil, fmt.Errorf("%s: %w", sub.label(), err)
		}
		rows[i].sum(rounds[i])
	}
	return rows, nil
}

func (o Options) withDefaults() Options {
	if o.Orders == 0 {
		o.Orders = 50_000
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Rate == 0 {
		o.Rate = 1000
	}
	if o.Span == 0 {
		o.Span = 3 * time.Second
	}
	return o
}

func (r *Row) sum(rounds []round) {
	median := func(of func(round) float64) float64 {
		all := make([]float64, len(rounds))
		for i := range rounds {
			all[i] = of(rounds[i])
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	r.Accepted = median(func(r round) float64 { return r.accepted })
	r.Drained = median(func(r round) float64 { return r.drained })
	r.Alone = median(func(r round) float64 { return r.alone })
	r.Memory = median(func(r round) float64 { return r.memory })
	r.AOF = median(func(r round) float64 { return r.log })
	r.CPU = time.Duration(median(func(r round) float64 { return float64(r.cpu) }))
	r.Overtaken = median(func(r round) float64 { return r.overtaken })
}
