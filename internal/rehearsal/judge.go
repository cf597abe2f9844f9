package rehearsal

import (
	"fmt"
	"time"

	"sluice/internal/plural"
)

// Limits are the requirements for the deployment.
type Limits struct {
	Latency time.Duration // p99 of the response times of purchases
	Drain   time.Duration // from the last order to the last row
	Lost    float64       // share of shoppers without a response, or with an error, after all retries
	Limited float64       // share of shoppers refused by a limit after all retries
}

// Verdict is the result of a rehearsal.
type Verdict string

// The verdicts.
const (
	Go      Verdict = "go"
	NoGo    Verdict = "no-go"
	Unclear Verdict = "unclear" // nothing failed, but a check was not possible
)

// Valid reports whether v is one of the verdicts.
func (v Verdict) Valid() bool { return v == Go || v == NoGo || v == Unclear }

// Mark is the result of a check.
type Mark string

// The marks.
const (
	Passed  Mark = "passed"
	Missed  Mark = "missed"
	Unknown Mark = "unknown"
)

// Check is a requirement and its result.
type Check struct {
	Name  string `json:"name"`
	Want  string `json:"want"`
	Found string `json:"found"`
	Mark  Mark   `json:"mark"`
	Why   string `json:"why,omitempty"` // further explanation of the mark
}

// maxSendDelay is the acceptable p99 of the send delay.
const maxSendDelay = 100 * time.Millisecond

const oneAddress = "all buyers shared one address"

// evaluate sets the checks and the verdict.
func (r *Report) evaluate(l Limits) {
	mark := func(ok bool) Mark {
		if ok {
			return Passed
		}
		return Missed
	}
	proven := true // the next checks must hold at any time
	add := func(name, want, found string, m Mark, why string) {
		if m == Missed && !proven && r.Stopped != "" {
			m, why = Unknown, "the rehearsal was not completed"
		}
		r.Checks = append(r.Checks, Check{name, want, found, m, why})
	}
	known := r.RecordsError == ""
	recorded := func(ok bool) (Mark, string) {
		if !known {
			return Unknown, r.RecordsError
		}
		return mark(ok), ""
	}

	m, why := recorded(r.Audit.Balanced)
	add("Units balance", "stock = left + queued + ordered + dead",
		fmt.Sprintf("%d = %d + %d + %d + %d", r.Audit.Stock, r.Audit.Left, queued(r.Audit), r.Audit.Ordered, r.Audit.Dead),
		m, why)
	m, why = recorded(r.Rows <= r.Copy.Stock)
	add("No oversell", "at most "+plural.Count(r.Copy.Stock, "order"), fmt.Sprint(r.Rows), m, why)
	m, why = recorded(len(r.Lost) == 0)
	if m == Missed && int64(len(r.Lost)) <= queued(r.Audit) {
		m, why = Unknown, "still queued: "+plural.Count(queued(r.Audit), "order")
	}
	add("Every accepted order is a row or a dead letter", "none missing", few(r.Lost, "none missing"), m, why)
	m, why = recorded(len(r.OverLimit) == 0)
	add("Limit per buyer", fmt.Sprintf("at most %d per buyer", r.Copy.PerBuyer),
		few(r.OverLimit, "no buyer has more"), m, why)

	proven = false
	sold := r.Sold + r.Cancelled
	enough, want := sold >= r.Copy.Stock, plural.Count(r.Copy.Stock, "unit")
	if r.Shoppers < r.Copy.Stock { // bots may all be refused, as intended
		served := r.Shoppers - r.GaveUp.NoAnswer - r.GaveUp.Limited // the others have checks of their own
		enough, want = enough || sold-r.ToBots >= served, "a unit for each of "+plural.Count(served, "shopper")
	}
	if m, why = recorded(enough); m == Missed && r.Addresses == Single {
		m, why = Unknown, oneAddress
	}
	add("Sold out", want, fmt.Sprintf("%d of %d sold", r.Sold, r.Copy.Stock), m, why)
	m, why = recorded(false)
	stored := "not within " + (2 * l.Drain).String()
	switch {
	case r.Drain == nil:
	case r.Dead > 0:
		m, why, stored = Missed, "", plural.Count(r.Dead, "dead letter")
	default:
		m, why, stored = mark(*r.Drain <= l.Drain.Seconds()), "", span(*r.Drain)+" after the last one"
	}
	add("Orders are stored", "within "+l.Drain.String(), stored, m, why)
	found := span(r.All.P99)
	m, why = mark(r.All.P99 <= l.Latency.Seconds()), ""
	switch {
	case r.Shoppers == 0:
		found, m, why = "no shoppers", Unknown, "all buyers were bots"
	case r.All.Count == 0:
		found, m = "no response", Missed
	case m == Missed && r.SendDelay.P99 > maxSendDelay.Seconds():
		m, why = Unknown, "this machine sent its requests up to "+span(r.SendDelay.P99)+
			" late: use a faster machine, or fewer buyers"
	}
	add("Response time", "p99 within "+l.Latency.String(), found, m, why)
	lost, limited := share(r.GaveUp.NoAnswer, r.Shoppers), share(r.GaveUp.Limited, r.Shoppers)
	add("Shoppers get a response", "all but "+percent(l.Lost), percent(lost)+" got none, or an error",
		mark(lost <= l.Lost), "")
	if m, why = mark(limited <= l.Limited), ""; m == Missed && r.Addresses == Single {
		m, why = Unknown, oneAddress
	}
	add("Limits admit shoppers", "all but "+percent(l.Limited), percent(limited)+" were refused", m, why)
	if r.Stopped != "" {
		add("Completed", "yes", "no", Unknown, r.Stopped)
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
			r.Why = append(r.Why, c.Name+": want "+c.Want+", found "+c.Found+parenthesize(c.Why))
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

// span formats seconds.
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

// few formats the first elements of a list, or returns none if it is empty.
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
