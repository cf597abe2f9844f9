package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sluice/internal/plural"
	"sluice/internal/rehearsal"
)

// rehearsalView shows the progress of a rehearsal: on a terminal in lines that it overwrites, elsewhere in a new line
// every plainEvery and at each step. It is safe for concurrent use.
type rehearsalView struct {
	colour bool
	head   string // printed first

	mu    sync.Mutex
	to    status
	shown time.Time // when the last plain line was written
	step  string    // of that line
}

const plainEvery = 2 * time.Second

func (p *program) rehearsalView(plain bool) *rehearsalView {
	v := &rehearsalView{to: *p.status()}
	v.to.terminal = v.to.terminal && !plain
	v.colour = v.to.terminal && p.getenv("NO_COLOR") == ""
	return v
}

func (v *rehearsalView) show(p rehearsal.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.to.w, v.head)
	v.head = ""
	switch {
	case v.to.terminal:
		v.to.overwrite(v.paint(p)...)
	case p.Step != v.step || time.Since(v.shown) >= plainEvery:
		v.shown, v.step = time.Now(), p.Step
		fmt.Fprintf(v.to.w, "%8s  %s: %d of %d arrived, %s, %d accepted, %d refused, %d limited, %d failed, p99 %s, "+
			"%s left, %s queued\n", clock(p.At), p.Step, p.Actors, p.Of, plural.Count(p.Requests, "request"), p.Accepted,
			p.Groups[rehearsal.Refused], p.Groups[rehearsal.Throttled], p.Groups[rehearsal.Failed],
			p.P99.Round(100*time.Microsecond), orUnknown(p.Left), orUnknown(p.Queued))
	}
}

func (v *rehearsalView) paint(p rehearsal.Progress) []string {
	sum := max(1, p.Groups[0]+p.Groups[1]+p.Groups[2]+p.Groups[3])
	lines := []string{
		fmt.Sprintf("%8s  %s", clock(p.At), v.in("1", p.Step)),
		fmt.Sprintf("  arrived   %s %d of %d", bar(int64(p.Actors), int64(p.Of)), p.Actors, p.Of),
	}
	for i, g := range []rehearsal.Group{rehearsal.Won, rehearsal.Refused, rehearsal.Throttled, rehearsal.Failed} {
		colour := []string{"32", "90", "33", "31"}[i]
		lines = append(lines, fmt.Sprintf("  %-9s %s %d", g, v.in(colour, bar(p.Groups[g], sum)), p.Groups[g]))
	}
	return append(lines, fmt.Sprintf("  response time p50 %s, p99 %s; %s left, %s queued",
		p.P50.Round(100*time.Microsecond), p.P99.Round(100*time.Microsecond), orUnknown(p.Left), orUnknown(p.Queued)))
}

func (v *rehearsalView) in(code, text string) string {
	if !v.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// end leaves the last lines on the terminal.
func (v *rehearsalView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.to.lines > 0 {
		fmt.Fprint(v.to.w, "\n\n")
	}
}

// bar draws a bar of thirty characters, of which n/of are filled.
func bar(n, of int64) string {
	const width = 30
	full := 0
	if of > 0 {
		full = int(n * width / of)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

func clock(d time.Duration) string { return fmt.Sprintf("%+.1fs", d.Seconds()) }

func orUnknown(n int64) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}
