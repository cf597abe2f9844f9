package main

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/queue"
)

// meterEvery is how often the queue's pace is looked at.
const meterEvery = 2 * time.Second

// measure keeps the meter of the queue's pace until ctx ends.
func (b *backend) measure(ctx context.Context) error {
	tick := time.NewTicker(meterEvery)
	defer tick.Stop()
	for {
		b.measureOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measureOnce leaves the meter as it is when Redis does not answer.
func (b *backend) measureOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, meterEvery)
	defer cancel()
	views, err := b.stock.List(ctx)
	if err != nil {
		return
	}
	stats, err := b.stores.queue.Stats(ctx)
	if err != nil {
		return
	}
	var accepted int64
	for _, v := range views {
		accepted += v.Accepted
	}
	b.meter.Sample(time.Now(), accepted, stats)
}

// drainCollector tells Prometheus within how long every accepted order is in SQL.
func drainCollector(m *queue.Meter) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_queue_drain_seconds",
		Help: "Every order accepted by now is in SQL within so many seconds at the present pace; +Inf when nothing leaves the queue, NaN while the pace is not known.",
	}, func() float64 {
		d, known, ok := m.Drain()
		switch {
		case ok:
			return d.Seconds()
		case known:
			return math.Inf(1)
		}
		return math.NaN()
	})
}
