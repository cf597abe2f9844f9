package rehearsal

import (
	"fmt"
	"time"
)

// Limits are what a set-up must keep to. A zero field takes the default named here.
type Limits struct {
	Latency time.Duration // p99 of what people waited for an answer to a purchase; 1 s
	Drain   time.Duration // from the last order to the last row; 30 s
	Lost    float64       // share of people who got no answer in the end; 0.001
	Limited float64       // share of people whom a limit kept out to the end; 0.01
}

func (l Limits) withDefaults() Limits {
	if l.Latency <= 0 {
		l.Latency = time.Second
	}
	if l.Drain <= 0 {
		l.Drain = 30 * time.Second
	}
	if l.Lost <= 0 {
		l.Lost = 0.001
	}
	if l.Limited <= 0 {
		l.Limited = 0.01
	}
	return l
}

// Verdict is the answer to the question that a rehearsal asks.
type Verdict string

// The verdicts.
const (
	Go      Verdict = "go"
	NoGo    Verdict = "no-go"
	Unclear Verdict = "unclear" // nothing failed, and something could not be found out
)

// Mark is how a check ended.
type Mark string

// The marks.
const (
	Passed  Mark = "passed"
	Missed  Mark = "missed"
	Unknown Mark = "unknown"
)

// Check is one thing that is asked of a rehearsal.
type Check struct {
	Name  string `json:"name"`
	Want  string `json:"want"`
	Found string `json:"found"`
	Mark  Mark   `json:"mark"`
	Why   string `json:"why,omitempty"` // of a mark that the two do not explain
}

// tooLate is how much of the p99 may be this machine's own lateness.
const tooLate = 100 * time.Millisecond

// judge fills in the checks and the verdict.
func (r *Report) judge(l Limits) {
	mark := func(ok bool) Mark {
		if ok {
			return Passed
		}
		return Missed
	}
	proven := true // what comes must hold at any instant
	add := func(name, want, found string, m Mark, why string) {
		if m == Missed && !proven && r.Stopped != "" {
			m, why = Unknown, "it was not played to the end"
		}
		r.Checks = append(r.Checks, Check{name, want, found, m, why})
	}
	known := r.BooksRead == ""
	books := func(ok bool) (Mark, string) {
		if !known {
			return Unknown, r.BooksRead
		}
		return mark(ok), ""
	}

	m, why := books(r.Audit.Balanced)
	add("The count of units balances", "stock = left + queued + ordered + dead", fmt.Sprintf("%d = %d + %d + %d + %d", r.Audit.Stock, r.Audit.Left, queued(r.Audit), r.Audit.Ordered, r.Audit.Dead), m, why)
	m, why = books(r.Rows <= r.Copy.Stock)
	add("Never more than there is", fmt.Sprintf("at most %d orders", r.Copy.Stock), fmt.Sprint(r.Rows), m, why)
	m, why = books(len(r.Lost) == 0)
	if m == Missed && int64(len(r.Lost)) <= queued(r.Audit) {
		m, why = Unknown, fmt.Sprintf("%d orders are still on their way", queued(r.Audit))
	}
	add("Every order that a buyer was told of is a row, or waits as a dead letter", "none is missing", few(r.Lost, "none is"), m, why)
	m, why = books(len(r.Twice) == 0)
	add("Nobody bought more than allowed", fmt.Sprintf("%d per buyer", r.Copy.PerBuyer), few(r.Twice, "nobody did"), m, why)

	proven = false
	switch single := r.Addresses == Single; {
	case r.People < r.Copy.Stock: // bots may all be kept out, as they should be
		add("Sold out", "no: fewer people than units came", fmt.Sprintf("%d of %d sold", r.Sold, r.Copy.Stock), Passed, "")
	case single && r.Sold+r.Cancelled < r.Copy.Stock:
		add("Sold out", fmt.Sprintf("%d units", r.Copy.Stock), fmt.Sprint(r.Sold), Unknown, "all came from one address")
	default:
		add("Sold out", fmt.Sprintf("%d units", r.Copy.Stock), fmt.Sprint(r.Sold), mark(r.Sold+r.Cancelled >= r.Copy.Stock), "")
	}
	switch {
	case r.Drain == nil:
		add("Orders become rows", "within "+l.Drain.String(), "not within "+(2*l.Drain).String(), Missed, "")
	default:
		add("Orders become rows", "within "+l.Drain.String(), span(*r.Drain)+" after the last one", mark(*r.Drain <= l.Drain.Seconds()), "")
	}
	switch late := r.Late.P99 > tooLate.Seconds(); {
	case r.People == 0:
	case r.All.Count == 0:
		add("People are answered soon", "99 of 100 within "+l.Latency.String(), "nobody was answered", Missed, "")
	case late && r.All.P99 > l.Latency.Seconds():
		add("People are answered soon", "99 of 100 within "+l.Latency.String(), span(r.All.P99), Unknown,
			"this machine itself sent its requests up to "+span(r.Late.P99)+" late: rehearse from another one, or with fewer buyers")
	default:
		add("People are answered soon", "99 of 100 within "+l.Latency.String(), span(r.All.P99), mark(r.All.P99 <= l.Latency.Seconds()), "")
	}
	lost, limited := share(r.GaveUp.NoAnswer, r.People), share(r.GaveUp.Limited, r.People)
	add("People get an answer in the end", "all but "+percent(l.Lost), percent(lost)+" got none", mark(lost <= l.Lost), "")
	if m, why = mark(limited <= l.Limited), ""; m == Missed && r.Addresses == Single {
		m, why = Unknown, "all came from one address"
	}
	add("Limits let people through in the end", "all but "+percent(l.Limited), percent(limited)+" were kept out", m, why)
	for _, f := range r.Faults {
		if f.Err != "" {
			add("Fault", f.What, "it could not be made", Unknown, f.Err)
		}
	}
	if r.Stopped != "" {
		add("Played to the end", "yes", "no", Unknown, r.Stopped)
	}

	r.Verdict = Go
	for _, c := range r.Checks {
		switch {
		case c.Mark == Missed:
			r.Verdict = NoGo
		case c.Mark == Unknown && r.Verdict == Go:
			r.Verdict = Unclear
		}
		if c.Mark != Passed {
			text := c.Name + ": wanted " + c.Want + ", found " + c.Found
			if c.Why != "" {
				text += " (" + c.Why + ")"
			}
			r.Why = append(r.Why, text)
		}
	}
}

func share(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

// span shows seconds as a person says them.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// few shows the first of a list, or says that there are none.
func few(list []string, none string) string {
	const most = 3
	switch n := len(list); {
	case n == 0:
		return none
	case n > most:
		return fmt.Sprintf("%d: %v, ...", n, list[:most])
	default:
		return fmt.Sprintf("%d: %v", n, list)
	}
}
