package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"sluice/client"
	"sluice/internal/plural"
)

func (o *adminClient) queueCommand() *cobra.Command {
	return o.adminCommand(&cobra.Command{
		Use:   "queue",
		Short: "Show the waiting orders and the time until they are in SQL",
		Long: `Show the orders in each shard of the queue, the rate at which it drains, and the time until all
orders accepted so far are in the database. If nothing leaves the queue, for example because no
worker runs, the command reports that instead of the time. A shard with as many ready orders as its
bound accepts no more: purchases of its sales get 503 until it has drained.`,
		Example: `  sluice queue
  sluice queue --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q client.Queue
			raw, err := o.fetch(cmd.Context(), get(adminPath("queue")), &q)
			if err != nil {
				return err
			}
			o.p.reportUnavailable(q.Unavailable)
			return o.p.show(raw, func(w io.Writer) { printQueue(w, q) })
		},
	})
}

// noDrain is shown instead of the time until all orders are in the database.
const noDrain = "nothing leaves the queue"

// stalled reports whether orders wait in a shard and none leaves it.
func stalled(s client.QueueShard) bool { return s.DrainedPerSecond != nil && s.DrainSeconds == nil }

func printQueue(w io.Writer, q client.Queue) {
	rows := q.Shards
	if len(rows) > 1 {
		rows = append(rows, client.QueueShard{QueueCounts: q.QueueCounts, Shard: -1})
	}
	table(w, "SHARD\tREADY\tDELAYED\tLEASED\tLEASES\tDEAD\tOLDEST\tDRAINED/S\tIN SQL WITHIN", rows,
		func(s client.QueueShard) []any {
			name, drained, within := fmt.Sprint(s.Shard), "?", cell((*seconds)(s.DrainSeconds))
			if s.DrainedPerSecond != nil {
				drained = fmt.Sprintf("%.0f", *s.DrainedPerSecond)
			}
			if stalled(s) || s.Shard < 0 && slices.ContainsFunc(q.Shards, stalled) {
				within = noDrain
			}
			if s.Shard < 0 {
				name, drained = "all", ""
			}
			return []any{
				name, s.Ready, s.Delayed, s.Leased, s.Leases, s.Dead, seconds(s.OldestAgeSeconds), drained, within,
			}
		})
	fmt.Fprintf(w, "a shard with %s rejects purchases\n", plural.Count(q.MaxReady, "ready order"))
}
