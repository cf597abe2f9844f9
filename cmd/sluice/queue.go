package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

type queueCounts struct {
	Ready   int64   `json:"ready"`
	Delayed int64   `json:"delayed"`
	Leased  int64   `json:"leased"`
	Leases  int64   `json:"leases"`
	Dead    int64   `json:"dead"`
	Oldest  float64 `json:"oldest_age_seconds"`
}

type queueJSON struct {
	queueCounts
	Drain    *float64 `json:"drain_seconds"`
	MaxReady int64    `json:"max_ready"`
	Shards   []struct {
		Shard int `json:"shard"`
		queueCounts
		Drained *float64 `json:"drained_per_second"`
		Drain   *float64 `json:"drain_seconds"`
	} `json:"shards"`
}

func (p *program) queueCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "queue",
		Short: "Show the waiting orders and the time until they are in SQL",
		Long: `Show the orders in each shard of the queue, the rate at which it drains, and the time until all
orders accepted so far are in the database. A shard with as many ready orders as its bound accepts
no more: purchases of its sales get 503 until it has drained.`,
		Example: `  sluice queue
  sluice queue --json`,
	}
	o := p.adminFlags(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var q queueJSON
		raw, err := o.get(cmd.Context(), "/admin/v1/queue", &q)
		if err != nil {
			return err
		}
		return o.show(raw, func(w io.Writer) { printQueue(w, q) })
	}
	return c
}

func printQueue(w io.Writer, q queueJSON) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SHARD\tREADY\tDELAYED\tLEASED\tLEASES\tDEAD\tOLDEST\tDRAINED/S\tIN SQL WITHIN")
	row := func(name string, c queueCounts, drained string, drain *float64) {
		fmt.Fprintf(
			t,
			"%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n",
			name,
			c.Ready,
			c.Delayed,
			c.Leased,
			c.Leases,
			c.Dead,
			span(&c.Oldest),
			drained,
			span(drain),
		)
	}
	for _, l := range q.Shards {
		drained := "?"
		if l.Drained != nil {
			drained = fmt.Sprintf("%.0f", *l.Drained)
		}
		row(fmt.Sprint(l.Shard), l.queueCounts, drained, l.Drain)
	}
	if len(q.Shards) > 1 {
		row("all", q.queueCounts, "", q.Drain)
	}
	t.Flush()
	fmt.Fprintf(w, "a shard with %d ready orders accepts no more\n", q.MaxReady)
}

// span prints seconds; nil is not known.
func span(seconds *float64) string {
	if seconds == nil {
		return "?"
	}
	return (time.Duration(*seconds*1000) * time.Millisecond).Round(10 * time.Millisecond).String()
}
