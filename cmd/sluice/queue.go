package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/client"
)

func (p *program) queueCommand() *cobra.Command {
	o := &adminClient{p: p}
	return o.adminCommand(&cobra.Command{
		Use:   "queue",
		Short: "Show the waiting orders and the time until they are in SQL",
		Long: `Show the orders in each shard of the queue, the rate at which it drains, and the time until all
orders accepted so far are in the database. A shard with as many ready orders as its bound accepts
no more: purchases of its sales get 503 until it has drained.`,
		Example: `  sluice queue
  sluice queue --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q client.Queue
			return o.print(cmd.Context(), get(adminPath("queue")), &q, func(w io.Writer) { printQueue(w, q) })
		},
	})
}

func printQueue(w io.Writer, q client.Queue) {
	rows := q.Shards
	if len(rows) > 1 {
		rows = append(rows, client.QueueShard{QueueCounts: q.QueueCounts, Shard: -1})
	}
	table(w, "SHARD\tREADY\tDELAYED\tLEASED\tLEASES\tDEAD\tOLDEST\tDRAINED/S\tIN SQL WITHIN", rows,
		func(s client.QueueShard) []any {
			name, drained := fmt.Sprint(s.Shard), "?"
			if s.DrainedPerSecond != nil {
				drained = fmt.Sprintf("%.0f", *s.DrainedPerSecond)
			}
			if s.Shard < 0 {
				name, drained = "all", ""
			}
			return []any{
				name, s.Ready, s.Delayed, s.Leased, s.Leases, s.Dead, seconds(s.OldestAgeSeconds), drained,
				(*seconds)(s.DrainSeconds),
			}
		})
	fmt.Fprintf(w, "a shard with %d ready orders rejects purchases\n", q.MaxReady)
}
