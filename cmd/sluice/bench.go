package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/queuebench"
)

func (p *program) benchCommand() *cobra.Command {
	return parent(&cobra.Command{Use: "bench", Short: "Measure parts of sluice on this machine"}, p.benchQueueCommand())
}

func (p *program) benchQueueCommand() *cobra.Command {
	var o queuebench.Options
	var svg string
	c := &cobra.Command{
		Use:   "queue",
		Short: "Compare the queue drivers list and stream with an in-process queue",
		Long: `Accept and drain orders through each driver of the order queue, and measure throughput, latency,
cost in Redis, and the orders lost or repeated when a worker or the server is killed. The command
starts its own redis-server, or uses the empty one of --redis, which it does not kill and leaves
empty. Compare results of one run only.`,
		Example: `  sluice bench queue
  sluice bench queue --orders 200000 --svg queues.svg
  sluice bench queue --redis redis://10.0.0.9:6379/0 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.logger() // replaces the logger of the Redis library
			status := p.status()
			rows, err := queuebench.Run(cmd.Context(), o, status.show)
			status.done()
			if err != nil {
				return orInterrupted(cmd.Context(), fmt.Errorf("bench queue: %w", err))
			}
			if svg != "" {
				err = createFile(svg, 0o644, func(w io.Writer) error { return queuebench.Draw(w, rows) })
			}
			return errors.Join(err, p.show(rows, func(w io.Writer) { queuebench.Write(w, rows) }))
		},
	}
	f := p.flags(c)
	f.StringVar(&o.RedisURL, "redis", "", "empty Redis to measure (default: starts a redis-server)")
	f.number(&o.Orders, "orders", "", 50_000, 1000, 5_000_000, "orders in each round")
	f.number(&o.Rounds, "rounds", "", 3, 1, 100, "measured rounds, drivers in turn, after one warm-up round")
	f.number(&o.Rate, "rate", "", 1000, 1, 20_000, "orders per second while latency is measured")
	f.duration(&o.Span, "span", "", 3*time.Second, 100*time.Millisecond, 10*time.Minute,
		"duration of the latency measurement")
	f.StringVar(&svg, "svg", "", "SVG file to write the chart to")
	f.json(&p.json)
	f.check(func(bad *problems) {
		if svg != "" {
			bad.check("--svg", checkFile(svg))
		}
		if o.RedisURL != "" {
			bad.checkRedis("--redis", o.RedisURL)
		}
	})
	return c
}
