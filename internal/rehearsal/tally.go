package rehearsal

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// Outcome is the result of a request: the problem code of a refusal, or one of these.
type Outcome string

// Outcomes without a problem code.
const (
	Accepted   Outcome = "accepted"
	Replayed   Outcome = "replayed"
	NoAnswer   Outcome = "no-answer"  // connection error or timeout
	Unexpected Outcome = "unexpected" // a response that is not from the deployment
)

// Problem codes with a special meaning.
const (
	SoldOut     Outcome = "sold-out"
	NotOpen     Outcome = "sale-not-open"
	Limited     Outcome = "quota-exceeded"
	Unavailable Outcome = "temporarily-unavailable"
	Forged      Outcome = "unauthorized"
)

// Group is a group of outcomes in the report.
type Group int

// The groups.
const (
	Won       Group = iota // accepted
	Refused                // refused for a valid reason: sold out, not open, bought before, invalid token
	Throttled              // a limit
	Failed                 // no response, or an error of the deployment
	groups
)

func (g Group) String() string { return [...]string{"accepted", "refused", "limited", "failed"}[g] }

// Of returns the group of an outcome.
func (o Outcome) Of() Group {
	switch o {
	case Accepted, Replayed:
		return Won
	case Limited:
		return Throttled
	case SoldOut, NotOpen, Forged, "already-bought", "sale-closed", "sale-paused":
		return Refused
	}
	return Failed
}

const longest = 2 * time.Minute

// response is the result of one purchase request.
type response struct {
	at      time.Duration // planned time, relative to the opening
	took    time.Duration // since the planned time
	late    time.Duration // part of took before the request was sent
	kind    kind
	outcome Outcome
	rule    string // of a limit
}

type second struct {
	sent     [groups]int64
	shoppers histogram // of shoppers with a response
}

// tally counts responses. Safe for concurrent use.
type tally struct {
	mu         sync.Mutex
	shoppers   map[Outcome]*histogram
	bots       map[Outcome]*histogram
	all        histogram // of shoppers with a response
	sendDelay  histogram
	pageViews  histogram
	rows       histogram            // from the 202 until the order is a row
	rules      map[string]*[2]int64 // shoppers, bots
	seconds    map[int]*second
	orders     map[string]bool   // accepted
	overLimit  []string          // buyers with several orders
	held       map[string]string // order by buyer
	requests   int64
	gaveUp     [groups]int64 // shoppers without success after all retries, by their last response
	unfinished [groups]int64 // shoppers that the end of the rehearsal interrupted, by their last response
	lastWon    time.Duration
	soldOut    time.Duration // first response with this code; 0 if there was none
}

func newTally() *tally {
	return &tally{
		shoppers: map[Outcome]*histogram{}, bots: map[Outcome]*histogram{}, rules: map[string]*[2]int64{},
		seconds: map[int]*second{}, orders: map[string]bool{}, held: map[string]string{},
	}
}

func (t *tally) add(a response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	by, i := t.shoppers, 0
	if a.kind.Bot() {
		by, i = t.bots, 1
	}
	entry(by, a.outcome).note(a.took)
	s := entry(t.seconds, int(math.Floor(a.at.Seconds()))) // negative before the opening
	s.sent[a.outcome.Of()]++
	if !a.kind.Bot() {
		t.sendDelay.note(a.late) // a bot may be late because of its previous response
	}
	if !a.kind.Bot() && a.outcome.Of() != Failed {
		t.all.note(a.took)
		s.shoppers.note(a.took)
	}
	if a.outcome == Limited {
		entry(t.rules, a.rule)[i]++
	}
	switch ended := a.at + a.took; {
	case a.outcome == Accepted:
		t.lastWon = max(t.lastWon, ended)
	case a.outcome == SoldOut && (t.soldOut == 0 || ended < t.soldOut):
		t.soldOut = ended
	}
}

// entry returns the value of a key, which it adds if there is none.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// won records an accepted order, which may be repeated.
func (t *tally) won(buyer, order string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders[order] = true
	if before, ok := t.held[buyer]; ok && before != order {
		t.overLimit = append(t.overLimit, buyer)
	}
	t.held[buyer] = order
}

// note counts a duration in one of the histograms of t.
func (t *tally) note(in *histogram, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in.note(took)
}

// count counts the last response to a shopper in one of the arrays of t.
func (t *tally) count(in *[groups]int64, last Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in[last.Of()]++
}

// Progress is the progress of a rehearsal.
type Progress struct {
	At       time.Duration // relative to the opening
	Actors   int           // started actors
	Of       int
	Requests int64
	Accepted int64
	Groups   [groups]int64 // requests by group
	P50, P99 time.Duration // of shoppers so far
	Left     int64         // units; -1 if unknown
	Queued   int64         // orders that are not rows; -1 if unknown
	Step     string        // current step
}

func (t *tally) progress() (p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.seconds {
		for g, n := range s.sent {
			p.Groups[g] += n
		}
	}
	p.Requests, p.Accepted = t.requests, int64(len(t.orders))
	p.P50, p.P99 = t.all.quantile(50), t.all.quantile(99)
	return p
}

// Times summarizes durations in seconds.
type Times struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

func timesOf(h *histogram) Times {
	at := func(q float64) float64 { return h.quantile(q).Seconds() }
	return Times{
		Count: h.total, P50: at(50), P95: at(95), P99: at(99),
		Max: (time.Duration(h.most) * time.Microsecond).Seconds(),
	}
}

// OutcomeTimes are the response times of one outcome.
type OutcomeTimes struct {
	Outcome Outcome `json:"outcome"`
	Times
}

// byOutcome returns the outcomes, the most frequent first.
func byOutcome(of map[Outcome]*histogram) []OutcomeTimes {
	list := make([]OutcomeTimes, 0, len(of))
	for o, h := range of {
		list = append(list, OutcomeTimes{o, timesOf(h)})
	}
	slices.SortFunc(list, func(a, b OutcomeTimes) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome))
	})
	return list
}
