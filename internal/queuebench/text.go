package queuebench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Write prints rows as a table with one column per driver.
func Write(w io.Writer, rows []Row) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	defer t.Flush()
	line := func(name string, cell func(Row) string) {
		fmt.Fprint(t, name)
		for _, r := range rows {
			fmt.Fprint(t, "\t", cell(r))
		}
		fmt.Fprintln(t)
	}
	line("", func(r Row) string { return r.Driver })
	line("accepted/s", func(r Row) string { return count(r.Accepted) })
	line(fmt.Sprintf("drained/s, %d takers", Takers), func(r Row) string { return count(r.Drained) })
	line("drained/s, one taker", func(r Row) string { return count(r.Alone) })
	line("request to take, p50", func(r Row) string { return span(r.P50) })
	line("request to take, p99", func(r Row) string { return span(r.P99) })
	line("memory per waiting message", func(r Row) string { return fmt.Sprintf("%.0f bytes", r.Memory) })
	line("Redis CPU per message", func(r Row) string {
		if r.CPU == 0 {
			return "none"
		}
		return span(r.CPU)
	})
	line("append-only file per message", func(r Row) string {
		if r.AOF < 0 {
			return "none"
		}
		return fmt.Sprintf("%.0f bytes", r.AOF)
	})
	line("worker killed: lost, delivered twice", func(r Row) string {
		return fmt.Sprintf("%d, %d of %d", r.Worker.Lost, r.Worker.Twice, r.Worker.Messages)
	})
	line("server killed (kill -9): lost", func(r Row) string {
		if r.Server == nil {
			return "not measured"
		}
		return fmt.Sprintf("%d of %d", r.Server.Lost, r.Server.Messages)
	})
	line("order, one taker", func(r Row) string {
		if r.InOrder {
			return "FIFO"
		}
		return "not kept"
	})
	line(fmt.Sprintf("overtaken, %d takers", Takers), func(r Row) string { return fmt.Sprintf("%.1f%%", 100*r.Overtaken) })
	line("repeated take returns", func(r Row) string {
		if r.Replayed {
			return "the same batch"
		}
		return "another batch"
	})
	line("entries left after acknowledgement", func(r Row) string { return fmt.Sprint(r.Kept) })
}

func count(perSecond float64) string {
	if perSecond >= 10_000 {
		return fmt.Sprintf("%.0fk", perSecond/1000)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

func span(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
