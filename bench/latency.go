package main

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// latency is the waiting time of orders on one way, at a fixed rate of arrivals.
type latency struct {
	name     string
	rate     float64   // orders per second
	p50, p99 []float64 // ms, of each round
}

// latencies measures the sides in interleaved rounds. waits returns, for one side, the wait of each order in ms.
func latencies(
	ctx context.Context, what string, rounds int, sides []latency, waits func(side int) ([]float64, error),
) error {
	return interleave(ctx, rounds, len(sides), func(round, i int) error {
		side := &sides[i]
		all, err := waits(i)
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		slices.Sort(all)
		p50, p99 := quantile(all, 0.5), quantile(all, 0.99)
		fmt.Fprintf(os.Stderr, "%-9s round %d  %-36s p50 %8.2f ms  p99 %8.2f ms  at %s/s\n",
			what, round, side.name, p50, p99, number(side.rate))
		if round > 0 {
			side.p50, side.p99 = append(side.p50, p50), append(side.p99, p99)
		}
		return nil
	})
}
