package rehearsal

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/client"
)

// usual are the defaults of sluice rehearse.
var usual = Limits{Latency: time.Second, Drain: 30 * time.Second, Lost: 0.001, Limited: 0.01}

// goodReport returns the report of a successful rehearsal.
func goodReport() *Report {
	drain, out := 0.4, 1.2
	return &Report{
		Rehearsed: "shoe", Copy: Sale{ID: "rehearsal-shoe-x", Title: "Rehearsal of <b>shoe</b>", Stock: 100, PerBuyer: 1},
		Sold: 100, Rows: 100, Shoppers: 400,
		SellOut: &out, Drain: &drain, Addresses: Loopback, All: Times{Count: 400, P50: 0.01, P95: 0.05, P99: 0.2, Max: 0.3},
		Audit: client.Audit{Stock: 100, Ordered: 100, Balanced: true},
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Report)
		want   Verdict
	}{
		"all is well":              {func(*Report) {}, Go},
		"out of balance":           {func(r *Report) { r.Audit.Balanced = false }, NoGo},
		"oversold":                 {func(r *Report) { r.Rows = 101 }, NoGo},
		"lost order":               {func(r *Report) { r.Lost = []string{"1"} }, NoGo},
		"limit per buyer exceeded": {func(r *Report) { r.OverLimit = []string{"a"} }, NoGo},
		"no records": {func(r *Report) {
			r.RecordsError, r.Audit, r.Sold, r.Rows, r.Drain = "down", client.Audit{}, 0, 0, nil
		}, Unclear},
		"not sold out":                 {func(r *Report) { r.Sold, r.Rows = 99, 99 }, NoGo},
		"not sold out, at one address": {func(r *Report) { r.Sold, r.Rows, r.Addresses = 99, 99, Single }, Unclear},
		"fewer shoppers than units":    {func(r *Report) { r.Sold, r.Rows, r.Shoppers = 50, 50, 50 }, Go},
		"few shoppers, without units":  {func(r *Report) { r.Sold, r.Rows, r.Shoppers = 49, 49, 50 }, NoGo},
		"few shoppers, units for bots": {func(r *Report) { r.Sold, r.ToBots, r.Shoppers = 60, 11, 50 }, NoGo},
		"few shoppers, all for bots":   {func(r *Report) { r.ToBots, r.Shoppers = 100, 50 }, Go},
		"few shoppers, one address": {
			func(r *Report) { r.Sold, r.Shoppers, r.GaveUp.Limited, r.Addresses = 45, 50, 5, Single }, Unclear,
		},
		"dead letters":                  {func(r *Report) { r.Rows, r.Dead = 99, 1 }, NoGo},
		"never drained":                 {func(r *Report) { r.Drain = nil }, NoGo},
		"drained late":                  {func(r *Report) { *r.Drain = 31 }, NoGo},
		"slow":                          {func(r *Report) { r.All.P99 = 1.1 }, NoGo},
		"slow, with send delay":         {func(r *Report) { r.All.P99, r.SendDelay.P99 = 1.1, 0.5 }, Unclear},
		"fast, with send delay":         {func(r *Report) { r.SendDelay.P99 = 0.5 }, Go},
		"no responses":                  {func(r *Report) { r.All = Times{} }, NoGo},
		"bots alone":                    {func(r *Report) { r.All, r.Shoppers = Times{}, 0 }, Unclear},
		"shoppers without response":     {func(r *Report) { r.GaveUp.NoAnswer = 1 }, NoGo},
		"shoppers refused by limits":    {func(r *Report) { r.GaveUp.Limited = 5 }, NoGo},
		"shoppers refused, one address": {func(r *Report) { r.GaveUp.Limited, r.Addresses = 5, Single }, Unclear},
		"stopped":                       {func(r *Report) { r.Stopped = "interrupted" }, Unclear},
		"stopped in the middle": {
			func(r *Report) { r.Stopped, r.Sold, r.Rows, r.Drain, r.All.P99 = "stop", 9, 9, nil, 7 }, Unclear,
		},
		"order still queued":           {func(r *Report) { r.Lost, r.Audit.Ready = []string{"1"}, 1 }, Unclear},
		"two lost, one of them queued": {func(r *Report) { r.Lost, r.Audit.Ready = []string{"1", "2"}, 1 }, NoGo},
		"stopped, and oversold":        {func(r *Report) { r.Stopped, r.Rows = "interrupted", 101 }, NoGo},
	} {
		r := goodReport()
		c.change(r)
		r.evaluate(usual)
		if r.Verdict != c.want || (len(r.Why) == 0) != (c.want == Go) {
			t.Errorf("%s: %s %q; want %s", name, r.Verdict, r.Why, c.want)
		}
	}
}

func TestVerdictNamesTheMostFrequentError(t *testing.T) {
	for outcomes, want := range map[string]string{
		"accepted sold-out no-answer not-found":   "most often no-answer",
		"quota-exceeded unauthorized unavailable": "most often unauthorized: the deployment does not accept",
	} {
		r := goodReport()
		r.GaveUp.NoAnswer, r.Outcomes = 1, nil
		for _, o := range strings.Fields(outcomes) {
			r.Outcomes = append(r.Outcomes, OutcomeTimes{Outcome: Outcome(o)})
		}
		if r.evaluate(usual); len(r.Why) != 1 || !strings.Contains(r.Why[0], "or an error ("+want) {
			t.Errorf("%s: %q; want %q", outcomes, r.Why, want)
		}
	}
	r := goodReport()
	r.GaveUp.NoAnswer = 1 // all buyers were interrupted before their first response
	if r.evaluate(usual); len(r.Why) != 1 || strings.Contains(r.Why[0], "(") {
		t.Errorf("%q", r.Why)
	}
}

// The report shows no numbers that were not read, and the error once.
func TestReportWithoutRecords(t *testing.T) {
	r := goodReport()
	r.RecordsError, r.Audit, r.Sold, r.Rows, r.SellOut, r.Drain = "down", client.Audit{}, 0, 0, nil, nil
	r.evaluate(usual)
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if c.Mark == Unknown && c.Found != "unknown" && c.Why != "down" {
			t.Errorf("%s: found %q", c.Name, c.Found)
		}
	}
	if n := strings.Count(strings.Join(r.Why, "; "), "down"); n != 1 {
		t.Errorf("the error is given %d times: %q", n, r.Why)
	}
	if !strings.Contains(text.String(), "sold                 unknown\n") || strings.Contains(page.String(), "<dd>0 of") {
		t.Errorf("units are reported as not sold:\n%s", &text)
	}
}

// The text shows the requirement of each check beside the result.
func TestTextHasTheRequirements(t *testing.T) {
	r := goodReport()
	r.evaluate(usual)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if line := c.Name + ": " + c.Found + "; required: " + c.Want; !strings.Contains(text.String(), line) {
			t.Errorf("the text lacks %q:\n%s", line, &text)
		}
	}
}

// Any number in the report can be 1. Its noun is then in the singular.
func TestReportOfOneBuyer(t *testing.T) {
	r := goodReport()
	r.Copy.Stock, r.Sold, r.Rows, r.Shoppers, r.Audit.Ready, r.Dead, r.Removed = 1, 1, 1, 1, 1, 1, 1
	r.Requests, r.Workload.Buyers, r.Workload.Retries, r.PageViews.Count, r.ToRow.Count = 1, 1, 1, 1, 1
	r.GaveUp, r.Lost, r.Rules = GaveUp{Limited: 1}, []string{"7"}, []RuleCount{{"all", 1, 1}}
	r.evaluate(usual)
	few := *r
	few.Copy.Stock, few.Lost, few.Checks = 2, nil, nil
	few.GaveUp.Limited = 0
	few.evaluate(usual)
	for _, r := range []*Report{r, &few} {
		var text bytes.Buffer
		if err := errors.Join(r.WriteText(&text), r.WriteHTML(&text)); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			text.WriteString(c.Want + "\n")
		}
		if wrong := regexp.MustCompile(`\b1 [a-z ]*(order|unit|buyer|shopper|request|retrie|letter|view)s\b`).FindAllString(
			text.String(), -1); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	}
}

// Quantiles must match those of the sorted list, within three digits.
func TestTimesMatchTheSortedList(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		n := 1 + draw.IntN(2000)
		list := make([]float64, n)
		h := &histogram{}
		for i := range list {
			d := time.Duration(math.Exp(draw.Float64()*15)) * time.Microsecond // up to three seconds
			h.note(d)
			list[i] = d.Seconds()
		}
		slices.Sort(list)
		got := timesOf(h)
		for q, value := range map[float64]float64{0.5: got.P50, 0.95: got.P95, 0.99: got.P99, 1: got.Max} {
			rank := q * float64(n) // between two elements, both are correct
			low, high := list[max(0, int(math.Floor(rank))-1)], list[min(n-1, int(math.Ceil(rank))-1)]
			if value < low-0.002*low-2e-6 || value > high+0.002*high+2e-6 {
				t.Fatalf("of %d: the %g quantile is %g, want %g to %g", n, q, value, low, high)
			}
		}
		if got.Count != int64(n) {
			t.Fatalf("%d of %d", got.Count, n)
		}
	}
	h := &histogram{}
	h.note(-time.Second)
	h.note(time.Hour)
	if got := timesOf(h); got.Count != 2 || math.Abs(got.Max-longest.Seconds()) > 1 {
		t.Errorf("durations beyond the bounds must be recorded at the bound: %+v", got)
	}
}

func TestTallySeparatesShoppersAndBots(t *testing.T) {
	c := newTally()
	c.add(response{at: -400 * time.Millisecond, took: time.Millisecond, kind: farm, outcome: NotOpen})
	c.add(response{at: 100 * time.Millisecond, took: time.Millisecond, kind: farm, outcome: Limited, rule: "ip"})
	c.add(response{at: 200 * time.Millisecond, took: 50 * time.Millisecond, outcome: Accepted})
	c.add(response{at: 1200 * time.Millisecond, took: 60 * time.Millisecond, outcome: SoldOut})
	c.add(response{at: 1300 * time.Millisecond, took: time.Second, outcome: NoAnswer})
	c.add(response{at: 1400 * time.Millisecond, took: time.Millisecond, outcome: Limited, rule: "ip"})
	if n := c.sendDelay.total; n != 4 {
		t.Errorf("send delay of %d requests, want 4", n)
	}
	if n := c.all.total; n != 3 {
		t.Errorf("%d responses to shoppers, want 3", n)
	}
	if got := c.rules["ip"]; *got != [2]int64{1, 1} {
		t.Errorf("limits %v", *got)
	}
	if s := c.seconds[-1]; s == nil || s.sent[Refused] != 1 {
		t.Errorf("the second before the opening: %+v", s)
	}
	if s := c.seconds[1]; s.sent[Refused] != 1 || s.sent[Failed] != 1 || s.sent[Throttled] != 1 {
		t.Errorf("the second second: %+v", s.sent)
	}
	if c.lastWon != 250*time.Millisecond || c.soldOut != 1260*time.Millisecond {
		t.Errorf("last won %s, sold out %s", c.lastWon, c.soldOut)
	}
	c.won("a", "1")
	c.won("a", "1")
	c.won("b", "2")
	if len(c.overLimit) != 0 {
		t.Errorf("a replay counts as a second order: %v", c.overLimit)
	}
	c.won("a", "3")
	if !slices.Equal(c.overLimit, []string{"a"}) {
		t.Errorf("twice: %v", c.overLimit)
	}
}

func TestDrainedIsAfterTheLastOrder(t *testing.T) {
	points := []Point{{At: -1}, {At: 0.5, Queued: 4}, {At: 1}, {At: 1.5, Queued: 2}, {At: 2}, {At: 2.5}}
	if at, ok := drained(points, 1.2); !ok || at != 2 {
		t.Errorf("%g, %v", at, ok)
	}
	if at, ok := drained(points, 2.2); !ok || at != 2.5 {
		t.Errorf("after a late order: %g, %v", at, ok)
	}
	if at, ok := drained(points[:4], 0); ok {
		t.Errorf("orders are queued at the end: %g", at)
	}
	if at, ok := drained(points, 3); ok {
		t.Errorf("there is no later point: %g", at)
	}
}

func TestPageIsSelfContained(t *testing.T) {
	r := goodReport()
	r.Seconds = []SecondLine{
		{At: -1, Refused: 3, P50: 0.001, P99: 0.002}, {At: 0, Accepted: 90, Limited: 4, P50: 0.01, P99: 0.1},
		{At: 1, Accepted: 10, Failed: 1},
	}
	r.Points = []Point{{0, 100, 0}, {0.5, 10, 7}, {1, 0, 0}}
	r.Outcomes = []OutcomeTimes{{Accepted, r.All}}
	r.Rules = []RuleCount{{"ip", 3, 40}}
	r.evaluate(usual)
	for name, change := range map[string]func(){
		"successful": func() {}, "empty": func() { *r = Report{Addresses: Single}; r.evaluate(usual) },
	} {
		change()
		var page, text, data bytes.Buffer
		if err := r.WriteHTML(&page); err != nil {
			t.Fatal(name, err)
		}
		if err := r.WriteText(&text); err != nil {
			t.Fatal(name, err)
		}
		if err := r.WriteJSON(&data); err != nil {
			t.Fatal(name, err)
		}
		for _, bad := range []string{"http://", "https://", "<script", "src=", "@import", "url(", "NaN", "Inf", "<b>shoe"} {
			if strings.Contains(page.String(), bad) {
				t.Errorf("%s: the page contains %s", name, bad)
			}
		}
		if n := strings.Count(page.String(), "<svg"); n != 3 {
			t.Errorf("%s: %d plots", name, n)
		}
		if !strings.Contains(text.String(), strings.ToUpper(string(r.Verdict))) {
			t.Errorf("%s: the text does not contain %s", name, r.Verdict)
		}
	}
}
