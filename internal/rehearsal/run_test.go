package rehearsal

import (
	"context"
	"fmt"
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

	"sluice/client"
)

// setup is an edge, a stage and books in memory, with faults to order.
type setup struct {
	*httptest.Server
	mu     sync.Mutex
	stock  int64
	opens  time.Time
	rows   map[string]string // order -> buyer
	seen   map[string]int    // addresses
	asked  map[string]int    // purchase requests by buyer
	slow   chan struct{}     // holds one token while a purchase is decided; nil: all at once
	each   time.Duration     // that a decision takes
	unpaid bool              // one row is cancelled: nobody paid in time
	lose   bool              // an order that is told is no row
	twice  bool              // every request gets a new order
	over   int64             // units too many
	busy   int               // so many requests of each buyer are told to come back
	hang   bool              // nothing is answered
	stay   int               // how often the copy cannot be removed yet
	gone   bool
	faults []string
}

func newSetup(t *testing.T) *setup {
	s := &setup{rows: map[string]string{}, seen: map[string]int{}, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sales", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/sales/{sale}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/sales/{sale}/orders", s.buy)
	mux.HandleFunc("GET /v1/orders/{order}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"created"}`) })
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *setup) buy(w http.ResponseWriter, r *http.Request) {
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
		time.Sleep(s.each) //nolint:forbidigo // what the test is about
		<-s.slow
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	s.seen[host]++
	s.asked[buyer]++
	switch {
	case !good:
		refuse(401, "unauthorized")
		return
	case time.Now().Before(s.opens):
		refuse(409, "sale-not-open")
		return
	case s.asked[buyer] <= s.busy:
		w.Header().Set("Retry-After", "1")
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

func (s *setup) Make(_ context.Context, saleID string, stock int64, opens, closes time.Time) (Sale, error) {
	s.stock, s.opens = stock, opens
	return Sale{ID: "rehearsal-" + saleID, Stock: stock, PerBuyer: 1}, nil
}

func (s *setup) PauseRedis(_ context.Context, _ string, span time.Duration) error {
	s.faults = append(s.faults, span.String())
	return nil
}
func (s *setup) WorkerDies(context.Context, string) (int, error) { return 0, nil }

func (s *setup) Remove(context.Context, string) (int64, bool, error) {
	if s.stay--; s.stay >= 0 {
		return 0, false, nil
	}
	s.gone = true
	return int64(len(s.rows)), true, nil
}

func (s *setup) Audit(context.Context, string) (client.Audit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(s.rows))
	if s.unpaid && n > 0 {
		n--
	}
	return client.Audit{Stock: s.stock, Left: s.stock - n, Ordered: n, Balanced: n <= s.stock}, nil
}

func (s *setup) Rows(_ context.Context, _ string, yield func(order, buyer string, cancelled bool)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, order := range slices.Sorted(maps.Keys(s.rows)) {
		if !s.lose || i > 0 {
			yield(order, s.rows[order], s.unpaid && i == 0)
		}
	}
	return nil
}

func (s *setup) Dead(context.Context, string, func(string)) error { return nil }

// config is of a small crowd, judged by what a busy machine does not change.
func (s *setup) config(t *testing.T) Config {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Sale: "shoe", Stock: 10, Crowd: Crowd{Buyers: 60, Curve: Spike, Span: 200 * time.Millisecond, Think: time.Millisecond, Retries: 3, Seed: 7},
		Target: target, Stage: s, Books: s, Lead: 100 * time.Millisecond, Timeout: 20 * time.Second, Limits: Limits{Latency: time.Minute, Drain: time.Minute},
		Sign:  func(buyer string, _ time.Duration) (string, error) { return buyer + ".signed", nil },
		Buyer: func(saleID, n string) string { return n },
	}
}

func rehearse(t *testing.T, cfg Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// missed names the checks that were.
func (r *Report) missed() string {
	var names []string
	for _, c := range r.Checks {
		if c.Mark == Missed {
			names = append(names, c.Name)
		}
	}
	return strings.Join(names, "; ")
}

func TestRehearsalOfAGoodSetup(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.stay = 2
	cfg := s.config(t)
	cfg.Crowd.Bots = 0.2
	cfg.Faults.PauseRedis = time.Second
	r := rehearse(t, cfg)
	if r.Verdict != Go || r.Sold != 10 || r.Rows != 10 || r.SellOut == nil || r.Drain == nil || r.Removed != 10 || !s.gone || !slices.Equal(s.faults, []string{"1s"}) {
		t.Errorf("%s %q: sold %d, %d rows, faults %q", r.Verdict, r.Why, r.Sold, r.Rows, s.faults)
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

func TestRehearsalFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*setup){
		"Every order that a buyer was told of is a row, or waits as a dead letter": func(s *setup) { s.lose = true },
		"The count of units balances; Never more than there is":                    func(s *setup) { s.over = 1 },
	} {
		s := newSetup(t)
		change(s)
		if r := rehearse(t, s.config(t)); r.Verdict != NoGo || r.missed() != want {
			t.Errorf("%s, missed %q; want %q", r.Verdict, r.missed(), want)
		}
	}
	s := newSetup(t)
	s.twice = true
	cfg := s.config(t)
	cfg.Stock = 10_000
	cfg.Crowd.Bots = 1
	if r := rehearse(t, cfg); r.Verdict != NoGo || !strings.Contains(r.missed(), "Nobody bought more than allowed") {
		t.Errorf("%s, missed %q", r.Verdict, r.missed())
	}
}

func TestOrderThatNobodyPaidForIsNotLost(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.unpaid = true
	if r := rehearse(t, s.config(t)); r.Verdict != Go || r.Rows != 9 || r.Cancelled != 1 || r.SellOut == nil {
		t.Errorf("%s %q, %d rows, %d cancelled", r.Verdict, r.Why, r.Rows, r.Cancelled)
	}
}

// Sixty come within a moment, and one is served at a time: whoever comes last waits for all the others, and that is what is reported. A crowd that waited for its turn to
// ask would report the time of one.
func TestWaitsCountFromWhenOneWouldHaveAsked(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.slow, s.each = make(chan struct{}, 1), 10*time.Millisecond
	r := rehearse(t, s.config(t))
	if least := 0.2; r.All.P99 < least || r.All.Max < r.All.P99*0.99 {
		t.Errorf("p99 %g s, at most %g s; want %g s at least", r.All.P99, r.All.Max, least)
	}
}

func TestPeopleComeBackWhenTold(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.busy = 1
	r := rehearse(t, s.config(t))
	if r.Verdict != Go || len(r.Rules) != 1 || r.Rules[0] != (RuleCount{"token", 60, 0}) || r.Sold != 10 {
		t.Errorf("%s %q, limits %v, sold %d", r.Verdict, r.Why, r.Rules, r.Sold)
	}
	s = newSetup(t)
	s.busy = 100
	cfg := s.config(t)
	cfg.Crowd.Retries = 0
	if r := rehearse(t, cfg); r.Verdict != NoGo || r.GaveUp.Limited != 60 || !strings.Contains(r.missed(), "Limits let people through") {
		t.Errorf("%s, gave up %+v, missed %q", r.Verdict, r.GaveUp, r.missed())
	}
}

func TestRehearsalThatIsStoppedCleansUpAndReports(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.hang = true
	ctx, stop := context.WithCancel(t.Context())
	cfg := s.config(t)
	cfg.Progress = func(p Progress) {
		if p.Actors == p.Of {
			stop()
		}
	}
	begun := time.Now()
	r, err := Run(ctx, cfg)
	if err != nil || r.Verdict == Go || r.Stopped == "" || !s.gone {
		t.Errorf("%+v, %v, removed %v", r, err, s.gone)
	}
	if took := time.Since(begun); took > cfg.Timeout {
		t.Errorf("it took %s: it has waited for answers", took)
	}
}

// An edge that counts by the address it sees lets one machine in once; one that believes what it is told sees a crowd.
func TestProbeFindsOutWhetherTheEdgeBelieves(t *testing.T) {
	t.Parallel()
	for want, believes := range map[Addresses]bool{Forwarded: true, Single: false} {
		seen := map[string]int{}
		var mu sync.Mutex
		edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			key := ""
			if believes {
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
		x := newExchange(base, 10, 5*time.Second)
		if err := x.probe(t.Context()); err != nil || x.addresses != want {
			t.Errorf("%s, %v; want %s", x.addresses, err, want)
		}
		x.close()
		edge.Close()
	}
}

func TestAnswersAreRead(t *testing.T) {
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
}
