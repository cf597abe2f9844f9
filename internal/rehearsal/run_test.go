package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/client"
)

// fixture is an edge, a Stage and Records in memory, with configurable errors.
type fixture struct {
	*httptest.Server
	mu         sync.Mutex
	stock      int64
	opens      time.Time
	rows       map[string]string // order -> buyer
	seen       map[string]int    // addresses
	requests   map[string]int    // purchase requests by buyer
	slow       chan struct{}     // limits concurrent decisions; nil: no limit
	each       time.Duration     // duration of a decision
	unpaid     bool              // one row is cancelled
	lose       bool              // one accepted order is no row
	twice      bool              // every request gets a new order
	over       int64             // units oversold
	busy       int               // requests of each buyer that are refused by a limit
	retryAfter string            // of these refusals; default 1
	hang       bool              // no request gets a response
	broken     http.HandlerFunc  // responds to purchases of odd buyers; nil: they succeed
	backend    bool              // it is a backend, and no edge
	stay       int               // number of failed removals
	queued     int64             // orders that stay in the queue
	audited    func()            // called before each audit; may be nil
	making     func()            // called instead of the creation of the copy, which then fails with its context
	made, gone bool
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{rows: map[string]string{}, seen: map[string]int{}, requests: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sales", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/sales/{sale}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/sales/{sale}/orders", s.buy)
	mux.HandleFunc("HEAD /.sluice/signals", func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Set("Content-Type", "text/event-stream"); !s.backend {
			http.NotFound(w, r)
		}
	})
	mux.HandleFunc("GET /v1/orders/{order}",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"created"}`) })
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *fixture) buy(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%q,"violated-policies":["token"]}`, code)
	}
	buyer, good := strings.CutSuffix(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".signed")
	if s.hang {
		<-r.Context().Done()
		return
	}
	if s.slow != nil {
		s.slow <- struct{}{}
		time.Sleep(s.each) //nolint:forbidigo // duration of a decision
		<-s.slow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.seen[host]++
	s.requests[buyer]++
	switch {
	case s.broken != nil && strings.ContainsAny(buyer[len(buyer)-1:], "13579"):
		s.broken(w, r)
		return
	case !good:
		refuse(401, "unauthorized")
		return
	case time.Now().Before(s.opens):
		refuse(409, "sale-not-open")
		return
	case s.requests[buyer] <= s.busy:
		w.Header().Set("Retry-After", cmp.Or(s.retryAfter, "1"))
		refuse(429, "quota-exceeded")
		return
	}
	if !s.twice {
		for order, holder := range s.rows {
			if holder == buyer {
				w.Header().Set("Idempotency-Replayed", "true")
				w.WriteHeader(202)
				fmt.Fprintf(w, `{"order_id":%q}`, order)
				return
			}
		}
	}
	if int64(len(s.rows)) >= s.stock+s.over {
		refuse(409, "sold-out")
		return
	}
	order := fmt.Sprint(1000 + len(s.rows))
	s.rows[order] = buyer
	w.WriteHeader(202)
	fmt.Fprintf(w, `{"order_id":%q}`, order)
}

func (s *fixture) Make(ctx context.Context, saleID string, stock int64, opens, closes time.Time) (Sale, error) {
	if s.making != nil {
		s.making()
		return Sale{}, ctx.Err()
	}
	s.stock, s.opens, s.made = stock, opens, true
	return Sale{ID: "rehearsal-" + saleID, Stock: stock, PerBuyer: 1}, nil
}

func (s *fixture) Remove(context.Context, string) (int64, bool, error) {
	if s.stay--; s.stay >= 0 {
		return 0, false, nil
	}
	s.gone = true
	return int64(len(s.rows)), true, nil
}

func (s *fixture) Audit(context.Context, string) (client.Audit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.audited != nil {
		s.audited()
	}
	if s.gone {
		return client.Audit{}, &client.Problem{Status: 404, Code: client.NotFound}
	}
	n := int64(len(s.rows))
	if s.unpaid && n > 0 {
		n--
	}
	return client.Audit{
		Stock: s.stock, Left: s.stock - n, Ready: s.queued, Ordered: n - s.queued, Balanced: n <= s.stock,
	}, nil
}

func (s *fixture) Orders(context.Context, client.OrderFilter) iter.Seq2[client.AdminOrder, error] {
	return func(yield func(client.AdminOrder, error) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, order := range slices.Sorted(maps.Keys(s.rows)) {
			row := client.AdminOrder{OrderID: order, Buyer: s.rows[order]}
			if s.unpaid && i == 0 {
				row.Status = client.Cancelled
			}
			if (!s.lose || i > 0) && !yield(row, nil) {
				return
			}
		}
	}
}

func (s *fixture) DeadLetters(context.Context, string) iter.Seq2[client.DeadLetter, error] {
	return func(func(client.DeadLetter, error) bool) {}
}

// config returns a small workload, with limits that do not depend on the speed of the machine.
func (s *fixture) config(t *testing.T) Config {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Sale: "shoe", Stock: 10,
		Workload: Workload{
			Buyers: 60, Curve: Spike, Span: 200 * time.Millisecond, Think: time.Millisecond, Retries: 3, Seed: 7,
		},
		Target: target, Stage: s, Records: s, Lead: 100 * time.Millisecond, Timeout: 20 * time.Second,
		Limits:      Limits{Latency: time.Minute, Drain: time.Minute, Lost: 0.001, Limited: 0.01},
		Connections: 10_000,
		Progress:    func(Progress) {},
		Sign:        func(buyer string, _ time.Duration) (string, error) { return buyer + ".signed", nil },
		Buyer:       func(saleID, n string) string { return n },
	}
}

func rehearse(t *testing.T, cfg Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// missed returns the names of the missed checks.
func (r *Report) missed() string {
	var names []string
	for _, c := range r.Checks {
		if c.Mark == Missed {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, "; ")
}

func TestSuccessfulRehearsal(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stay = 2
	cfg := s.config(t)
	cfg.Workload.Bots = 0.2
	r := rehearse(t, cfg)
	if r.Verdict != Go || r.Sold != 10 || r.Rows != 10 || r.SellOut == nil || r.Drain == nil || r.Removed != 10 ||
		!s.gone {
		t.Errorf("%s %q: sold %d, %d rows", r.Verdict, r.Why, r.Sold, r.Rows)
	}
	count := map[Outcome]int64{}
	for _, o := range slices.Concat(r.Outcomes, r.Bots) {
		count[o.Outcome] += o.Count
	}
	if count[Accepted] != 10 || count[Forged] != 4*botTries || count[SoldOut] == 0 {
		t.Errorf("outcomes %v", count)
	}
	if r.Addresses == Loopback && len(s.seen) < 40 {
		t.Errorf("%d addresses for 60 buyers", len(s.seen))
	}
}

func TestRehearsalDetectsErrors(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*fixture){
		"Every accepted order is a row or a dead letter": func(s *fixture) { s.lose = true },
		"Units balance; No oversell":                     func(s *fixture) { s.over = 1 },
	} {
		s := newFixture(t)
		change(s)
		if r := rehearse(t, s.config(t)); r.Verdict != NoGo || r.missed() != want {
			t.Errorf("%s, missed %q; want %q", r.Verdict, r.missed(), want)
		}
	}
	s := newFixture(t)
	s.twice = true
	cfg := s.config(t)
	cfg.Stock = 10_000
	cfg.Workload.Bots = 1
	if r := rehearse(t, cfg); r.Verdict != NoGo || !strings.Contains(r.missed(), "Limit per buyer") {
		t.Errorf("%s, missed %q", r.Verdict, r.missed())
	}
}

// Without an edge, no limit by address is rehearsed.
func TestBackendAsTheTargetIsNoGo(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.backend = true
	if r := rehearse(t, s.config(t)); r.Verdict != NoGo || r.missed() != "The target is an edge" {
		t.Errorf("%s, missed %q", r.Verdict, r.missed())
	}
}

func TestShoppersWithServerErrorsHaveNoResponse(t *testing.T) {
	t.Parallel()
	respond := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) }
	}
	for name, broken := range map[string]http.HandlerFunc{
		"page of a proxy": respond(502, "<html>"), "internal error": respond(500, `{"code":"internal-error"}`),
		"unknown code": respond(500, `{"code":"other"}`), "accepted without an order": respond(202, "{}"),
		"no copy": respond(404, `{"code":"not-found"}`), "other keys": respond(401, `{"code":"unauthorized"}`),
		"long code":    respond(409, `{"code":"`+strings.Repeat("x", maxText+1)+`"}`),
		"endless body": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Length", "99999999999") },
	} {
		s := newFixture(t)
		s.broken = broken
		cfg := s.config(t)
		cfg.Workload.Retries = 0
		r := rehearse(t, cfg)
		if want := "Shoppers get a response"; r.missed() != want || r.GaveUp.NoAnswer != 30 {
			t.Errorf("%s: %s, missed %q, want %q; %d gave up, want 30", name, r.Verdict, r.missed(), want, r.GaveUp.NoAnswer)
		}
	}
}

// Proxies add headers.
func TestLongResponseHeaders(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.broken = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", strings.Repeat("x", maxHeader/2))
		w.WriteHeader(409)
		fmt.Fprint(w, `{"code":"already-bought"}`)
	}
	r := rehearse(t, s.config(t))
	for _, o := range r.Outcomes {
		if o.Outcome == "already-bought" && o.Count == 30 && r.GaveUp.NoAnswer == 0 {
			return
		}
	}
	t.Errorf("outcomes %v, %d without a response; want 30 already-bought", r.Outcomes, r.GaveUp.NoAnswer)
}

// A machine that signs too slowly starts some buyers after the end, or none of them.
func TestShoppersThatStartTooLateHaveNoResponse(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	cfg := s.config(t)
	cfg.Workload.Bots = 0.5
	r := newRun(cfg)
	r.opening = time.Now().Add(-2 * tail)
	if err := r.play(t.Context()); err != nil || r.tally.unfinished != [groups]int64{Failed: 30} {
		t.Errorf("unfinished shoppers: %v, want 30 without a response; %v", r.tally.unfinished, err)
	}
}

// The rehearsal ends while shoppers wait for a Retry-After: their last response decides why they have no unit.
func TestShoppersThatWaitAtTheEndCountByTheirLastResponse(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.busy, s.retryAfter = 100, "60"
	cfg := s.config(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cfg.Progress = func(p Progress) {
		if p.Groups[Throttled] == 60 {
			end()
		}
	}
	r := newRun(cfg)
	r.sale, r.opening = Sale{ID: "copy"}, time.Now()
	if err := r.play(ctx); err != nil || r.tally.unfinished != [groups]int64{Throttled: 60} {
		t.Errorf("unfinished shoppers: %v, want 60 that a limit refused; %v", r.tally.unfinished, err)
	}
}

func TestCancelledOrderIsNotLost(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.unpaid = true
	if r := rehearse(t, s.config(t)); r.Verdict != Go || r.Rows != 9 || r.Cancelled != 1 || r.SellOut == nil {
		t.Errorf("%s %q, %d rows, %d cancelled", r.Verdict, r.Why, r.Rows, r.Cancelled)
	}
}

// Sixty requests arrive together and are processed one after the other. Response times must include the waiting time.
func TestTimesCountFromThePlannedStart(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.slow, s.each = make(chan struct{}, 1), 10*time.Millisecond
	r := rehearse(t, s.config(t))
	if least := 0.2; r.All.P99 < least || r.All.Max < r.All.P99*0.99 {
		t.Errorf("p99 %g s, max %g s; want at least %g s", r.All.P99, r.All.Max, least)
	}
}

func TestShoppersHeedRetryAfter(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.busy = 1
	r := rehearse(t, s.config(t))
	if r.Verdict != Go || len(r.Rules) != 1 || r.Rules[0] != (RuleCount{"token", 60, 0}) || r.Sold != 10 {
		t.Errorf("%s %q, limits %v, sold %d", r.Verdict, r.Why, r.Rules, r.Sold)
	}
	s = newFixture(t)
	s.busy = 100
	cfg := s.config(t)
	cfg.Workload.Retries = 0
	if r := rehearse(t, cfg); r.Verdict != NoGo || r.GaveUp.Limited != 60 ||
		!strings.Contains(r.missed(), "Limits admit shoppers") {
		t.Errorf("%s, gave up %+v, missed %q", r.Verdict, r.GaveUp, r.missed())
	}
}

func TestStoppedRehearsalCleansUpAndReports(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hang = true
	ctx, stop := context.WithCancel(t.Context())
	cfg := s.config(t)
	cfg.Progress = func(p Progress) {
		if p.Actors == p.Of {
			stop()
		}
	}
	begun := time.Now()
	r, err := Run(ctx, t.Context(), cfg)
	if err != nil || r.Verdict == Go || r.Stopped == "" || !s.gone {
		t.Errorf("%+v, %v, removed %v", r, err, s.gone)
	}
	if took := time.Since(begun); took > cfg.Timeout {
		t.Errorf("took %s: Run waited for responses", took)
	}
}

// A rehearsal that is stopped while it waits for queued orders waits a few seconds longer. It has not shown that they
// are stored too late.
func TestStopWhileOrdersAreQueuedIsUnclear(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.queued = 1
	ctx, stop := context.WithCancel(t.Context())
	cfg := s.config(t)
	cfg.Progress = func(p Progress) {
		if p.Step == "waiting for queued orders" {
			s.audited = func() {
				if ctx.Err() != nil {
					s.queued = 0
				}
				stop()
			}
		}
	}
	r, err := Run(ctx, t.Context(), cfg)
	if err != nil || r.Verdict != Unclear || r.Stopped != "interrupted" || r.Drain == nil || !s.gone {
		t.Errorf("%+v, %v, removed %v", r, err, s.gone)
	}
}

// A rehearsal that is stopped twice neither waits for queued orders nor removes the copy.
func TestStopOfTheCleanupReports(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"waiting for queued orders", "removing the copy"} {
		s := newFixture(t)
		s.queued, s.stay = 1, 1<<30
		ctx, stop := context.WithCancel(t.Context())
		cleaning, abandon := context.WithCancel(t.Context())
		cfg := s.config(t)
		cfg.Progress = func(p Progress) {
			if p.Actors == p.Of {
				stop()
			}
			if p.Step == step {
				abandon()
			}
		}
		r, err := Run(ctx, cleaning, cfg)
		if err == nil || r.Verdict == Go || !strings.Contains(r.NotRemoved, `"sluice rehearse clean" removes it`) || s.gone {
			t.Errorf("%s: %+v, %v, removed %v", step, r, err, s.gone)
		}
	}
}

// A rehearsal that is stopped twice while the copy is created does not know whether the server has created it.
func TestStopOfTheCreationNamesTheRemedy(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	cleaning, abandon := context.WithCancel(t.Context())
	s.making = func() { stop(); abandon() }
	r, err := Run(ctx, cleaning, s.config(t))
	if r != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"sluice rehearse clean"`) {
		t.Errorf("%+v, %v", r, err)
	}
}

// "sluice rehearse clean" removes the copy of a rehearsal that runs.
func TestRemovalOfTheCopyEndsTheRehearsal(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.hang = true
	cfg := s.config(t)
	cfg.Timeout = time.Hour
	cfg.Progress = func(p Progress) {
		if p.Actors == p.Of {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gone = true
		}
	}
	if r := rehearse(t, cfg); r.Verdict != Unclear || r.Stopped != errRemoved.Error() {
		t.Errorf("%s, stopped: %q, want %q", r.Verdict, r.Stopped, errRemoved)
	}
}

// Without a copy there is nothing to remove. A rehearsal that is stopped before the first request reports that, too.
func TestStopWhileTokensAreSigned(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} { // the tokens of the estimate, and those of the buyers
		s := newFixture(t)
		ctx, stop := context.WithCancel(t.Context())
		cfg := s.config(t)
		cfg.Sign = func(buyer string, _ time.Duration) (string, error) {
			if s.made == made {
				stop()
			}
			return buyer, nil
		}
		r, err := Run(ctx, t.Context(), cfg)
		if s.made != made || s.gone != made {
			t.Errorf("a copy was created: %t, and removed: %t; want %t", s.made, s.gone, made)
		}
		if made && (err != nil || r.Verdict != Unclear || r.Stopped != "interrupted") ||
			!made && (r != nil || !errors.Is(err, context.Canceled)) {
			t.Errorf("%+v, %v", r, err)
		}
		if made {
			var text strings.Builder
			if err := r.WriteJSON(&text); err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(text.String()) {
				if strings.Contains(line, ": null") && !strings.Contains(line, "_seconds") {
					t.Errorf("null for a list: %s", line)
				}
			}
		}
	}
}

// An edge that trusts X-Forwarded-For limits each address in it. Another one limits the address of the machine.
func TestDetectTrustInXForwardedFor(t *testing.T) {
	t.Parallel()
	for want, trusts := range map[Addresses]bool{Forwarded: true, Single: false} {
		seen := map[string]int{}
		var mu sync.Mutex
		edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := ""
			if trusts {
				key = r.Header.Get("X-Forwarded-For")
			}
			if seen[key]++; seen[key] > 41 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		base, err := url.Parse(edge.URL)
		if err != nil {
			t.Fatal(err)
		}
		x := newEdge(base, 10, 5*time.Second)
		if err := x.testForwarded(t.Context()); err != nil || x.addresses != want {
			t.Errorf("%s, %v; want %s", x.addresses, err, want)
		}
		x.closeIdle()
		edge.Close()
	}
}

func TestResponseFields(t *testing.T) {
	if got := forge("aa.bb.cc"); got == "aa.bb.cc" || !strings.HasPrefix(got, "aa.bb.") {
		t.Errorf("forged %q", got)
	}
	if got := field([]byte(`{"a":"x","code":"sold-out"}`), "code"); got != "sold-out" {
		t.Errorf("%q", got)
	}
	if got := field([]byte(`{"code":7}`), "code"); got != "" {
		t.Errorf("%q", got)
	}
	if got := violated([]byte(`{}`)); got != "unnamed" {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": time.Second, "-1": time.Second, "3600": time.Minute, "9223372037": time.Minute,
	} {
		var resp fasthttp.Response
		resp.Header.Set("Retry-After", text)
		if got := retryAfter(&resp); got != want {
			t.Errorf("Retry-After %q is %s, want %s", text, got, want)
		}
	}
}
