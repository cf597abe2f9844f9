package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// String returns the report of a run.
func (r *Result) String() string {
	var b strings.Builder
	p := r.Plan
	span := time.Duration(0)
	faults := make([]Fault, len(r.Struck))
	for i, s := range r.Struck {
		faults[i], span = s.Fault, max(span, s.Ended)
	}
	fmt.Fprintf(&b, "seed %d: %d faults in %.0f s; %d backends, %d workers, %d watchers; lease %s\n",
		p.Seed, len(faults), span.Seconds(), p.Cast.Backends, p.Cast.Workers, p.Cast.Watchers, p.Lease)
	kinds, count := ByKind(faults)
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-20s %5d\n", k, count[k])
	}
	fmt.Fprintf(&b, "a full disk is %s\n", r.Disk)
	fmt.Fprintf(&b, "admin:")
	for i, what := range slices.Sorted(maps.Keys(r.Commands)) {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s %d", what, r.Commands[what])
	}
	h := r.History
	requests := 0
	for _, n := range h.Asked {
		requests += n
	}
	fmt.Fprintf(
		&b,
		"\nbuyers: %d sent %d requests for %d sales: %d answers 202 (%d of them replays), %d refusals, %d times 503, %d "+
			"without an answer\n",
		len(h.Asked),
		requests,
		len(h.Sales),
		h.Accepted,
		h.Replayed,
		h.Refused,
		h.Unavailable,
		h.Unanswered,
	)
	live := 0
	for _, row := range r.Books.Rows {
		if !row.Cancelled {
			live++
		}
	}
	v := r.Verdict
	fmt.Fprintf(&b, "accepted %d (confirmed to a buyer), rows %d (%d of them cancelled), dead letters %d\n",
		len(h.Confirmed), len(r.Books.Rows), len(r.Books.Rows)-live, len(r.Books.Letters))
	fmt.Fprintf(&b, "lost %d, twice %d, without an accept %d, units wrong in %d places, left over %d, contradictions %d\n",
		len(v.Lost), len(v.Twice), len(v.Unrecorded), len(v.Units), len(v.Unfinished), len(v.Contrary)+len(r.Wrong))
	if h.Losses != nil && h.Losses() > 0 {
		fmt.Fprintf(&b, "Redis may have lost data %d times; %d request keys got a second order that per_buyer allowed\n",
			h.Losses(), h.Forgotten)
	}
	fmt.Fprintf(&b, "idle %.1f s after the last fault (bound %s)\n", r.Idle.Seconds(), p.Idle)
	if n := len(r.Recovery); n > 0 {
		sorted := slices.Sorted(slices.Values(r.Recovery))
		fmt.Fprintf(&b,
			"from the kill of a worker to its orders' rows, %d times: median %.2f s, 90%% %.2f s, max %.2f s; the lease is %s\n",
			n, sorted[n/2].Seconds(), sorted[n*9/10].Seconds(), sorted[n-1].Seconds(), p.Lease)
	}
	for i, text := range r.Violations() {
		if i == 30 {
			fmt.Fprintf(&b, "... and %d more\n", len(r.Violations())-i)
			break
		}
		fmt.Fprintf(&b, "VIOLATION: %s\n", text)
	}
	return b.String()
}
