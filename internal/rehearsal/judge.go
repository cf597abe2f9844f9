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
	Limited float64       // share of shoppers rejected by a limit after all retries
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

const (
	oneAddress = "all buyers shared one address"
	unread     = "the orders could not be read"
)

func (r *Report) evaluate(l Limits) {
	r.Checks = []Check{r.balance(), r.oversell(), r.acceptedOrders(), r.buyerLimit()} // hold at any time
	for _, c := range []Check{r.soldOut(), r.drained(l), r.responseTime(l), r.responses(l), r.limited(l)} {
		if c.Mark == Missed && r.Stopped != "" {
			c.Mark, c.Why = Unknown, "the rehearsal was not completed"
		}
		r.Checks = append(r.Checks, c)
	}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Why == unread {
			c.Found = "unknown"
		}
	}
	if r.backend {
		const why = "without an edge, no limit by address applies: set --target to the URL of the edge"
		r.Checks = append(r.Checks, Check{"The target is an edge", "yes", "a backend", Missed, why})
	}
	if r.RecordsError != "" {
		r.Checks = append(r.Checks, Check{"Orders can be read", "yes", "no", Unknown, r.RecordsError})
	}
	if r.Stopped != "" {
		r.Checks = append(r.Checks, Check{"Completed", "yes", "no", Unknown, r.Stopped})
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

func mark(ok bool) Mark {
	if ok {
		return Passed
	}
	return Missed
}

// recorded is mark for a check of the records, and Unknown if they could not be read.
func (r *Report) recorded(ok bool) (m Mark, why string) {
	if r.RecordsError != "" {
		return Unknown, unread
	}
	return mark(ok), ""
}

func (r *Report) balance() Check {
	a := r.Audit
	found := fmt.Sprintf("%d = %d + %d + %d + %d", a.Stock, a.Left, queued(a), a.Ordered, a.Dead)
	m, why := r.recorded(a.Balanced)
	return Check{"Units balance", "stock = left + queued + ordered + dead", found, m, why}
}

func (r *Report) oversell() Check {
	m, why := r.recorded(r.Rows <= r.Copy.Stock)
	return Check{"No oversell", "at most " + plural.Count(r.Copy.Stock, "order"), fmt.Sprint(r.Rows), m, why}
}

func (r *Report) acceptedOrders() Check {
	m, why := r.recorded(len(r.Lost) == 0)
	if m == Missed && int64(len(r.Lost)) <= queued(r.Audit) {
		m, why = Unknown, "still queued: "+plural.Count(queued(r.Audit), "order")
	}
	const name, none = "Every accepted order is a row or a dead letter", "none missing"
	return Check{name, none, few(r.Lost, none), m, why}
}

func (r *Report) buyerLimit() Check {
	m, why := r.recorded(len(r.OverLimit) == 0)
	want := fmt.Sprintf("at most %d per buyer", r.Copy.PerBuyer)
	return Check{"Limit per buyer", want, few(r.OverLimit, "no buyer has more"), m, why}
}

func (r *Report) soldOut() Check {
	sold := r.Sold + r.Cancelled
	enough, want := sold >= r.Copy.Stock, plural.Count(r.Copy.Stock, "unit")
	if r.Shoppers < r.Copy.Stock { // bots may all be refused, as intended
		served := r.Shoppers - r.GaveUp.NoAnswer - r.GaveUp.Limited // the others have checks of their own
		enough, want = enough || sold-r.ToBots >= served, "a unit for each of "+plural.Count(served, "shopper")
	}
	m, why := r.recorded(enough)
	if m == Missed && r.Addresses == Single {
		m, why = Unknown, oneAddress
	}
	return Check{"Sold out", want, fmt.Sprintf("%d of %d sold", r.Sold, r.Copy.Stock), m, why}
}

func (r *Report) drained(l Limits) Check {
	c := Check{Name: "Orders are stored", Want: "within " + l.Drain.String()}
	switch {
	case r.Drain == nil:
		c.Found = "not within " + (2 * l.Drain).String()
		c.Mark, c.Why = r.recorded(false)
	case r.Dead > 0:
		c.Found, c.Mark = plural.Count(r.Dead, "dead letter"), Missed
	default:
		c.Found, c.Mark = span(*r.Drain)+" after the last one", mark(*r.Drain <= l.Drain.Seconds())
	}
	return c
}

func (r *Report) responseTime(l Limits) Check {
	c := Check{
		Name: "Response time", Want: "p99 within " + l.Latency.String(), Found: span(r.All.P99),
		Mark: mark(r.All.P99 <= l.Latency.Seconds()),
	}
	switch {
	case r.Shoppers == 0:
		c.Found, c.Mark, c.Why = "no shoppers", Unknown, "all buyers were bots"
	case r.All.Count == 0:
		c.Found, c.Mark = "no response", Missed
	case c.Mark == Missed && r.SendDelay.P99 > maxSendDelay.Seconds():
		c.Mark, c.Why = Unknown, "this machine sent its requests up to "+span(r.SendDelay.P99)+
			" late: use a faster machine, or fewer buyers"
	}
	return c
}

func (r *Report) responses(l Limits) Check {
	lost := share(r.GaveUp.NoAnswer, r.Shoppers)
	c := Check{
		Name: "Shoppers get a response", Want: "all but " + percent(l.Lost), Found: percent(lost) + " got none, or an error",
		Mark: mark(lost <= l.Lost),
	}
	if c.Mark == Missed {
		c.Why = r.frequentError()
	}
	return c
}

// frequentError names the most frequent response to shoppers that is an error. It returns "" if there was none.
func (r *Report) frequentError() string {
	for _, o := range r.Outcomes { // the most frequent first
		switch {
		case o.Outcome == Forged: // the token of a shopper is valid
			return "most often unauthorized: the deployment does not accept the key that signs the tokens"
		case o.Outcome.Of() == Failed:
			return "most often " + string(o.Outcome)
		}
	}
	return ""
}

func (r *Report) limited(l Limits) Check {
	rejected := share(r.GaveUp.Limited, r.Shoppers)
	m, why := mark(rejected <= l.Limited), ""
	if m == Missed && r.Addresses == Single {
		m, why = Unknown, oneAddress
	}
	return Check{"Limits admit shoppers", "all but " + percent(l.Limited), percent(rejected) + " were rejected", m, why}
}

func share(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

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
