package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/client"
)

// Report is all that a rehearsal has found out. Times are seconds, counted from the opening where they are instants.
type Report struct {
	Verdict Verdict  `json:"verdict"`
	Why     []string `json:"why,omitempty"` // what was missed, or could not be found out
	Checks  []Check  `json:"checks"`

	Rehearsed string    `json:"rehearsed"` // the real sale
	Copy      Sale      `json:"copy"`
	Target    string    `json:"target"`
	Opened    time.Time `json:"opened_at"`
	Took      float64   `json:"took_seconds"`
	Crowd     CrowdJSON `json:"crowd"`
	Addresses Addresses `json:"addresses"`
	Meaning   string    `json:"addresses_mean"`
	Faults    []Fault   `json:"faults,omitempty"`
	Stopped   string    `json:"stopped,omitempty"` // why it was not played to its end

	Sold    int64 `json:"sold"`
	Rows    int64 `json:"rows"`    // that are not cancelled
	ToBots  int64 `json:"to_bots"` // units that bots were given
	Unheard int64 `json:"unheard"` // rows that no buyer was told of, since the answer was lost
	Dead    int64 `json:"dead"`
	// Cancelled are rows that were not paid within the sale's hold; their units were for sale again.
	Cancelled int64    `json:"cancelled"`
	SellOut   *float64 `json:"sold_out_seconds"`
	Drain     *float64 `json:"drain_seconds"`
	People    int64    `json:"people"`
	Requests  int64    `json:"requests"` // to buy
	Busiest   int64    `json:"busiest_second"`
	GaveUp    GaveUp   `json:"gave_up"`

	All      Times          `json:"answers_to_people"`
	Outcomes []OutcomeTimes `json:"outcomes_of_people"`
	Bots     []OutcomeTimes `json:"outcomes_of_bots"`
	Looks    Times          `json:"looks"`
	ToRow    Times          `json:"order_to_row"`
	Late     Times          `json:"late"` // how late this machine sent the requests of people; part of all the times above
	Rules    []RuleCount    `json:"refusals_by_rule"`

	Audit     client.Audit `json:"audit"`
	Lost      []string     `json:"lost,omitempty"`  // orders
	Twice     []string     `json:"twice,omitempty"` // buyers
	BooksRead string       `json:"books_error,omitempty"`

	Seconds []SecondLine `json:"seconds"`
	Points  []Point      `json:"counts"`

	Removed    int64  `json:"removed_orders"`
	NotRemoved string `json:"not_removed,omitempty"`
}

// CrowdJSON is a Crowd as it is written down.
type CrowdJSON struct {
	Buyers  int     `json:"buyers"`
	Bots    int     `json:"bots"`
	Curve   Curve   `json:"curve"`
	Span    string  `json:"span"`
	Think   string  `json:"think"`
	Retries int     `json:"retries"`
	Seed    uint64  `json:"seed"`
	Peak    float64 `json:"peak_arrivals_per_second"`
}

// GaveUp is how many people came back too often.
type GaveUp struct {
	NoAnswer int64 `json:"without_an_answer"`
	Limited  int64 `json:"limited"`
	NotOpen  int64 `json:"refused"` // told of something that may change, such as a sale that is not open
}

// RuleCount is how often a limit refused.
type RuleCount struct {
	Rule   string `json:"rule"`
	People int64  `json:"people"`
	Bots   int64  `json:"bots"`
}

// SecondLine is one second.
type SecondLine struct {
	At       int     `json:"at"`
	Accepted int64   `json:"accepted"`
	Refused  int64   `json:"refused"`
	Limited  int64   `json:"limited"`
	Failed   int64   `json:"failed"`
	P50      float64 `json:"p50_seconds"`
	P99      float64 `json:"p99_seconds"`
}

// report sums up, and asks the books one last time.
func (r *run) report(ctx context.Context, stopped bool, playErr error) *Report {
	t := r.tally
	rep := &Report{
		Rehearsed: r.Config.Sale, Copy: r.sale, Target: r.Target.String(), Opened: r.opening.UTC(), Took: r.now().Seconds(),
		Crowd: CrowdJSON{
			Buyers: r.Crowd.Buyers, Bots: r.Crowd.bots(), Curve: r.Crowd.Curve, Span: r.Crowd.Span.String(), Think: r.Crowd.Think.String(), Retries: r.Crowd.Retries,
			Seed: r.Crowd.Seed, Peak: r.Crowd.PeakRate(),
		},
		Addresses: r.x.addresses, Meaning: r.x.addresses.Told(), Faults: r.faults,
		People: int64(r.Crowd.people()),
	}
	switch {
	case playErr != nil:
		rep.Stopped = playErr.Error()
	case stopped:
		rep.Stopped = "it was interrupted"
	}
	if err := r.readBooks(ctx, rep); err != nil {
		rep.BooksRead = err.Error()
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	rep.Requests = t.requests
	rep.GaveUp = GaveUp{t.gaveUp[Failed], t.gaveUp[Held], t.gaveUp[Refused]}
	if rep.Stopped == "" {
		rep.GaveUp.NoAnswer += r.kept
	}
	rep.Twice = append(rep.Twice, t.twice...)
	rep.All, rep.Looks, rep.ToRow, rep.Late = timesOf(t.all), timesOf(t.looks), timesOf(t.rows), timesOf(t.late)
	rep.Outcomes, rep.Bots = byOutcome(t.people), byOutcome(t.bots)
	for _, rule := range slices.Sorted(maps.Keys(t.rules)) {
		rep.Rules = append(rep.Rules, RuleCount{rule, t.rules[rule][0], t.rules[rule][1]})
	}
	for _, at := range slices.Sorted(maps.Keys(t.seconds)) {
		s := t.seconds[at]
		line := SecondLine{at, s.sent[Won], s.sent[Refused], s.sent[Held], s.sent[Failed], quantile(s.people, 50).Seconds(), quantile(s.people, 99).Seconds()}
		rep.Seconds = append(rep.Seconds, line)
		rep.Busiest = max(rep.Busiest, line.Accepted+line.Refused+line.Limited+line.Failed)
	}
	r.watched.mu.Lock()
	defer r.watched.mu.Unlock()
	rep.Points = r.watched.points
	if rep.Sold+rep.Cancelled >= r.sale.Stock {
		at := t.lastWon.Seconds()
		if t.soldOut > 0 {
			at = min(at, t.soldOut.Seconds())
		}
		rep.SellOut = &at
	}
	if at, ok := drained(rep.Points, t.lastWon.Seconds()); ok {
		took := at - t.lastWon.Seconds()
		rep.Drain = &took
	}
	if won := t.bots[Accepted]; won != nil {
		rep.ToBots = won.TotalCount()
	}
	rep.judge(r.Limits)
	return rep
}

// readBooks compares what buyers were told with what is written down.
func (r *run) readBooks(ctx context.Context, rep *Report) (err error) {
	if rep.Audit, err = r.Books.Audit(ctx, r.sale.ID); err != nil {
		return fmt.Errorf("the audit: %w", err)
	}
	rep.Sold = rep.Audit.Stock - rep.Audit.Left
	found, of := map[string]bool{}, map[string]int64{}
	if err := r.Books.Rows(ctx, r.sale.ID, func(order, buyer string, cancelled bool) {
		found[order] = true
		if cancelled {
			rep.Cancelled++
			return
		}
		rep.Rows++
		of[buyer]++
	}); err != nil {
		return fmt.Errorf("the rows: %w", err)
	}
	if err := r.Books.Dead(ctx, r.sale.ID, func(order string) {
		if !found[order] {
			rep.Dead++
		}
		found[order] = true
	}); err != nil {
		return fmt.Errorf("the dead letters: %w", err)
	}
	for buyer, n := range of {
		if n > r.sale.PerBuyer {
			rep.Twice = append(rep.Twice, buyer)
		}
	}
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	heard := int64(0)
	for order := range r.tally.orders {
		if found[order] {
			heard++
		} else {
			rep.Lost = append(rep.Lost, order)
		}
	}
	rep.Unheard = int64(len(found)) - heard
	slices.Sort(rep.Lost)
	return nil
}

// WriteJSON writes a report for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a report for a terminal, in a few lines.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", r.Rehearsed, strings.ToUpper(string(r.Verdict)))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	soldOut := "not sold out"
	if r.SellOut != nil {
		soldOut = "sold out after " + span(*r.SellOut)
	}
	line("sold", "%d of %d, %s; %d of them to bots", r.Sold, r.Copy.Stock, soldOut, r.ToBots)
	if r.Drain != nil {
		line("in SQL", "all, %s after the last order", span(*r.Drain))
	}
	line("purchase requests", "%d, %d in the busiest second", r.Requests, r.Busiest)
	line("people waited", "p50 %s, p95 %s, p99 %s, at most %s", span(r.All.P50), span(r.All.P95), span(r.All.P99), span(r.All.Max))
	for _, o := range r.Outcomes {
		line("  "+string(o.Outcome), "%d, p99 %s", o.Count, span(o.P99))
	}
	for _, rule := range r.Rules {
		line("limit "+rule.Rule, "%d of people, %d of bots", rule.People, rule.Bots)
	}
	for _, f := range r.Faults {
		line("fault", "%s, at %s%s", f.What, span(f.At), because(f.Err))
	}
	line("addresses", "%s", r.Meaning)
	b.WriteByte('\n')
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "  %-8s %s: %s%s\n", c.Mark, c.Name, c.Found, because(c.Why))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}
