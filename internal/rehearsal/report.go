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
	"sluice/internal/plural"
)

// Report is the result of a rehearsal. Times are in seconds; points in time are relative to the opening.
type Report struct {
	Verdict Verdict  `json:"verdict"`
	Why     []string `json:"why,omitempty"` // the checks that did not pass
	Checks  []Check  `json:"checks"`

	Rehearsed string          `json:"rehearsed"` // id of the real sale
	Copy      Sale            `json:"copy"`
	Target    string          `json:"target"`
	Opened    time.Time       `json:"opened_at"`
	Took      float64         `json:"took_seconds"`
	Workload  WorkloadSummary `json:"workload"`
	Addresses Addresses       `json:"addresses"`
	Meaning   string          `json:"addresses_description"`
	Stopped   string          `json:"stopped,omitempty"` // why the rehearsal was not completed

	Sold       int64 `json:"sold"`
	Rows       int64 `json:"rows"`       // without cancelled ones
	ToBots     int64 `json:"to_bots"`    // units sold to bots
	Unreported int64 `json:"unreported"` // rows without a response to the buyer
	Dead       int64 `json:"dead"`
	// Cancelled rows were not paid in time. Their units were sold again.
	Cancelled int64    `json:"cancelled"`
	SellOut   *float64 `json:"sold_out_seconds"`
	Drain     *float64 `json:"drain_seconds"`
	Shoppers  int64    `json:"shoppers"`
	Requests  int64    `json:"requests"` // purchase requests
	Busiest   int64    `json:"busiest_second"`
	GaveUp    GaveUp   `json:"gave_up"`

	All       Times          `json:"response_times"`
	Outcomes  []OutcomeTimes `json:"shopper_outcomes"`
	Bots      []OutcomeTimes `json:"bot_outcomes"`
	PageViews Times          `json:"page_views"`
	ToRow     Times          `json:"order_to_row"`
	SendDelay Times          `json:"send_delay"` // of this machine; included in the times above
	Rules     []RuleCount    `json:"refusals_by_rule"`

	Audit        client.Audit `json:"audit"`
	Lost         []string     `json:"lost,omitempty"`       // orders
	OverLimit    []string     `json:"over_limit,omitempty"` // buyers
	RecordsError string       `json:"records_error,omitempty"`

	Seconds []SecondLine `json:"seconds"`
	Points  []Point      `json:"counts"`

	Removed    int64  `json:"removed_orders"`
	NotRemoved string `json:"not_removed,omitempty"`

	backend bool // the target is a backend
}

// WorkloadSummary is the Workload in the report.
type WorkloadSummary struct {
	Buyers  int     `json:"buyers"`
	Bots    int     `json:"bots"`
	Curve   Curve   `json:"curve"`
	Span    string  `json:"span"`
	Think   string  `json:"think"`
	Retries int     `json:"retries"`
	Seed    uint64  `json:"seed"`
	Peak    float64 `json:"peak_arrivals_per_second"`
}

// GaveUp counts the shoppers without success after all retries, by their last response.
type GaveUp struct {
	NoAnswer int64 `json:"without_response"` // or with an error of the deployment
	Limited  int64 `json:"limited"`
	NotOpen  int64 `json:"refused"` // refused for a reason that may change, such as a sale that is not open
}

// RuleCount counts the refusals of a limit.
type RuleCount struct {
	Rule     string `json:"rule"`
	Shoppers int64  `json:"shoppers"`
	Bots     int64  `json:"bots"`
}

// SecondLine is the summary of one second.
type SecondLine struct {
	At       int     `json:"at"`
	Accepted int64   `json:"accepted"`
	Refused  int64   `json:"refused"`
	Limited  int64   `json:"limited"`
	Failed   int64   `json:"failed"`
	P50      float64 `json:"p50_seconds"`
	P99      float64 `json:"p99_seconds"`
}

func (r *run) report(ctx context.Context, stopped bool, playErr error) *Report {
	rep := &Report{
		Rehearsed: r.Config.Sale, Copy: r.sale, Target: r.Target.String(), Opened: r.opening.UTC(), Took: r.now().Seconds(),
		Workload: WorkloadSummary{
			Buyers: r.Workload.Buyers, Bots: r.Workload.bots(), Curve: r.Workload.Curve, Span: r.Workload.Span.String(),
			Think: r.Workload.Think.String(), Retries: r.Workload.Retries,
			Seed: r.Workload.Seed, Peak: r.Workload.PeakRate(),
		},
		Addresses: r.edge.addresses, Meaning: r.edge.addresses.Description(),
		Shoppers: int64(r.Workload.shoppers()), backend: r.backend,
		Rules: []RuleCount{}, Seconds: []SecondLine{}, // lists in JSON also if they are empty
	}
	switch {
	case stopped:
		rep.Stopped = "interrupted"
	case playErr != nil:
		rep.Stopped = playErr.Error()
	}
	if err := r.readRecords(ctx, rep); err != nil {
		rep.RecordsError = err.Error()
	}
	r.readTally(rep)
	rep.evaluate(r.Limits)
	return rep
}

// readTally summarizes the responses to buyers and the audits. The records must have been read.
func (r *run) readTally(rep *Report) {
	t := r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	rep.Requests = t.requests
	gaveUp := t.gaveUp
	if rep.Stopped == "" {
		for g, n := range t.unfinished {
			gaveUp[g] += n
		}
	}
	rep.GaveUp = GaveUp{gaveUp[Failed], gaveUp[Throttled], gaveUp[Refused]}
	rep.OverLimit = append(rep.OverLimit, t.overLimit...)
	rep.All, rep.PageViews = timesOf(&t.all), timesOf(&t.pageViews)
	rep.ToRow, rep.SendDelay = timesOf(&t.rows), timesOf(&t.sendDelay)
	rep.Outcomes, rep.Bots = byOutcome(t.shoppers), byOutcome(t.bots)
	for _, rule := range slices.Sorted(maps.Keys(t.rules)) {
		rep.Rules = append(rep.Rules, RuleCount{rule, t.rules[rule][0], t.rules[rule][1]})
	}
	for _, at := range slices.Sorted(maps.Keys(t.seconds)) {
		s := t.seconds[at]
		line := SecondLine{
			at, s.sent[Won], s.sent[Refused], s.sent[Throttled], s.sent[Failed], s.shoppers.quantile(50).Seconds(),
			s.shoppers.quantile(99).Seconds(),
		}
		rep.Seconds = append(rep.Seconds, line)
		rep.Busiest = max(rep.Busiest, line.Accepted+line.Refused+line.Limited+line.Failed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rep.Points = r.points
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
		rep.ToBots = won.total
	}
}

// readRecords compares the responses of buyers with the stored orders.
func (r *run) readRecords(ctx context.Context, rep *Report) (err error) {
	if rep.Audit, err = r.Records.Audit(ctx, r.sale.ID); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	rep.Sold = rep.Audit.Stock - rep.Audit.Left
	found, of := map[string]bool{}, map[string]int64{}
	for o, err := range r.Records.Orders(ctx, client.OrderFilter{SaleID: r.sale.ID}) {
		if err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		found[o.OrderID] = true
		if o.Status == client.Cancelled {
			rep.Cancelled++
			continue
		}
		rep.Rows++
		of[o.Buyer]++
	}
	for d, err := range r.Records.DeadLetters(ctx, r.sale.ID) {
		if err != nil {
			return fmt.Errorf("read dead letters: %w", err)
		}
		if !found[d.OrderID] {
			rep.Dead++
		}
		found[d.OrderID] = true
	}
	for buyer, n := range of {
		if n > r.sale.PerBuyer {
			rep.OverLimit = append(rep.OverLimit, buyer)
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
	rep.Unreported = int64(len(found)) - heard
	slices.Sort(rep.Lost)
	return nil
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes a summary of the report for a terminal.
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
	if r.Audit.Stock > 0 { // else it could not be read
		line("sold", "%d of %d, %s; %d to bots", r.Sold, r.Copy.Stock, soldOut, r.ToBots)
	} else {
		line("sold", "unknown")
	}
	if r.Drain != nil && r.Dead == 0 {
		line("stored", "all orders, %s after the last one", span(*r.Drain))
	}
	line("purchase requests", "%d, %d in the busiest second", r.Requests, r.Busiest)
	line("shopper responses", "p50 %s, p95 %s, p99 %s, max %s", span(r.All.P50), span(r.All.P95), span(r.All.P99),
		span(r.All.Max))
	for _, o := range r.Outcomes {
		line("  "+string(o.Outcome), "%d, p99 %s", o.Count, span(o.P99))
	}
	for _, rule := range r.Rules {
		line("limit "+rule.Rule, "rejected %s, %s", plural.Count(rule.Shoppers, "shopper request"),
			plural.Count(rule.Bots, "bot request"))
	}
	line("addresses", "%s", r.Meaning)
	b.WriteByte('\n')
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "  %-8s %s: %s; required: %s%s\n", c.Mark, c.Name, c.Found, c.Want, parenthesize(c.Why))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func parenthesize(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}
