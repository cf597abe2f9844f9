package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/queuebench"
)

func (p *program) benchCommand() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure parts of sluice on this machine"}
	c.AddCommand(p.benchQueueCommand())
	return c
}

func (p *program) benchQueueCommand() *cobra.Command {
	var o queuebench.Options
	var svg string
	var asJSON bool
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var bad problems
			if o.RedisURL != "" {
				bad.checkRedis("--redis", o.RedisURL)
			}
			if o.Orders < 1000 || o.Orders > 5_000_000 {
				bad.add("--orders must be between 1000 and 5000000")
			}
			if o.Rounds < 1 || o.Rounds > 100 {
				bad.add("--rounds must be between 1 and 100")
			}
			if o.Rate < 1 || o.Rate > 20_000 {
				bad.add("--rate must be between 1 and 20000")
			}
			if o.Span < 100*time.Millisecond || o.Span > 10*time.Minute {
				bad.add("--span must be between 100ms and 10m")
			}
			if err := bad.err(); err != nil {
				return err
			}
			var plot *os.File // opened first, so that a bad path fails before the measurement
			if svg != "" {
				var err error
				if plot, err = os.Create(svg); err != nil {
					return usage("--svg: %w", err)
				}
				defer plot.Close()
			}
			rows, err := queuebench.Run(cmd.Context(), o, func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
			if err != nil {
				return fmt.Errorf("bench queue: %w", err)
			}
			if plot != nil {
				if err := errors.Join(queuebench.Draw(plot, rows), plot.Close()); err != nil {
					return fmt.Errorf("bench queue: %w", err)
				}
			}
			if asJSON {
				return p.printJSON(rows)
			}
			queuebench.Write(p.out, rows)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.RedisURL, "redis", "", "an empty Redis to measure on (default: a redis-server of its own)")
	f.IntVar(&o.Orders, "orders", 50_000, "orders in each round")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds that count, drivers in turn; one more warms up")
	f.IntVar(&o.Rate, "rate", 1000, "orders a second while latency is measured")
	f.DurationVar(&o.Span, "span", 3*time.Second, "for how long latency is measured")
	f.StringVar(&svg, "svg", "", "file to draw the figures to")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
