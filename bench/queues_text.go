package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Targets of the parts that are no contests of speed.
const (
	rowsTarget  = 0.2 // of asynq's latency
	depthTarget = 0.1 // difference between a shallow queue and a deep one
)

func (r queueReport) print(w io.Writer) {
	for _, mode := range fsyncs {
		var results []result
		for _, d := range r.Drained {
			if d.Fsync == mode {
				results = append(results, d.result)
			}
		}
		if len(results) > 0 {
			fmt.Fprintf(w, "\ndrained by a handler that does nothing, appendfsync %s\n", mode)
			printTable(w, results)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(r.Rows) > 0 {
		fmt.Fprintln(w, "\naccepted to row, ms: median of the rounds (lowest..highest)")
		fmt.Fprintln(t, "appendfsync\tarrivals\tname\tp50\tp99\tours to it, p50\tp99\t")
		for _, x := range r.Rows {
			fmt.Fprintf(
				t,
				"%s\t%s/s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				x.Fsync,
				number(x.Rate),
				x.Name,
				spread(x.P50),
				spread(x.P99),
				spread(x.Share50),
				spread(x.Share99),
				x.verdict(),
			)
		}
		t.Flush()
	}
	if d := r.Depth; d != nil {
		verdict := "reached"
		if m := median(d.RatioR); m > 1+depthTarget || m < 1-depthTarget {
			verdict = "missed"
		}
		fmt.Fprintf(
			w,
			"\ntake+ack of %d messages, with %d and with %s in the queue, us\n",
			d.Batch,
			d.Batch,
			number(float64(d.Deep)),
		)
		fmt.Fprintf(t, "round trip\t%s\t%s\tratio %s\t\n", spread(d.Shallow), spread(d.Deeper), spread(d.Ratio))
		fmt.Fprintf(
			t,
			"in Redis\t%s\t%s\tratio %s\t%s (within %.0f%%)\n",
			spread(d.RedisS),
			spread(d.RedisD),
			spread(d.RatioR),
			verdict,
			100*depthTarget,
		)
		t.Flush()
	}
	if len(r.Idle) > 0 {
		fmt.Fprintln(w, "\nan idle queue")
		fmt.Fprintln(t, "name\tcommands/s\twith those of scripts\tRedis CPU\tpush to take p50\tp99\tpushes\t")
		for _, x := range r.Idle {
			fmt.Fprintf(
				t,
				"%s\t%.1f\t%.1f\t%.2f%%\t%.2f ms\t%.2f ms\t%d\t\n",
				x.Name,
				x.Commands,
				x.All,
				x.CPU,
				x.P50,
				x.P99,
				x.Pushes,
			)
		}
		t.Flush()
	}
}

func (r rowsResult) verdict() string {
	switch {
	case len(r.Share50) == 0:
		return ""
	case r.Name != asynqAsItIs:
		return "for orientation"
	case median(r.Share50) <= rowsTarget && median(r.Share99) <= rowsTarget:
		return fmt.Sprintf("reached (at most %g)", rowsTarget)
	}
	return fmt.Sprintf("missed (at most %g)", rowsTarget)
}

// spread is the median, and the lowest and highest.
func spread(of []float64) string {
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g (%.3g..%.3g)", median(of), slices.Min(of), slices.Max(of))
}
