package rehearsal

import (
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Outcome is what came of a request: the short code of a refusal, or one of these.
type Outcome string

// Outcomes that have no code of their own.
const (
	Accepted   Outcome = "accepted"
	Replayed   Outcome = "replayed"
	NoAnswer   Outcome = "no-answer"  // the connection broke, or the time was over
	Unexpected Outcome = "unexpected" // an answer that is none of the set-up's
)

// Codes that are looked at by name.
const (
	SoldOut     Outcome = "sold-out"
	NotOpen     Outcome = "sale-not-open"
	Limited     Outcome = "quota-exceeded"
	Unavailable Outcome = "temporarily-unavailable"
	Forged      Outcome = "unauthorized"
)

// Group is what outcomes are drawn together as.
type Group int

// The groups.
const (
	Won     Group = iota // a unit
	Refused              // no unit, as it should be: sold out, not open, bought before, no good token
	Held                 // a limit
	Failed               // no answer, or one that says that something is down
	groups
)

func (g Group) String() string { return [...]string{"accepted", "refused", "limited", "failed"}[g] }

// Of is the group of an outcome.
func (o Outcome) Of() Group {
	switch o {
	case Accepted, Replayed:
		return Won
	case Limited:
		return Held
	case NoAnswer, Unavailable, Unexpected, "internal-error", "request-timeout":
		return Failed
	}
	return Refused
}

// What times are kept as: microseconds up to two minutes, and three digits of them.
const (
	longest = 2 * time.Minute
	digits  = 3
)

func newTimes(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest.Microseconds(), digits)
}

func note(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d, time.Microsecond), longest).Microseconds()) // within its bounds, so it cannot fail
}

// answer is one purchase request and what came of it.
type answer struct {
	at      time.Duration // when it was to be sent, from the opening
	took    time.Duration // from then on
	late    time.Duration // of it, what passed before it was sent: for a person, this machine's own fault
	kind    Kind
	outcome Outcome
	rule    string // of a limit
}

// second is what happened in one second of the rehearsal.
type second struct {
	sent   [groups]int64
	people *hdrhistogram.Histogram // of people that got an answer
}

// tally counts answers. It is safe for concurrent use.
type tally struct {
	mu       sync.Mutex
	people   map[Outcome]*hdrhistogram.Histogram
	bots     map[Outcome]*hdrhistogram.Histogram
	all      *hdrhistogram.Histogram // people's that got an answer
	late     *hdrhistogram.Histogram
	looks    *hdrhistogram.Histogram
	rows     *hdrhistogram.Histogram // from the 202 until the order is told to be a row
	rules    map[string][2]int64     // people, bots
	seconds  map[int]*second
	orders   map[string]string // order -> buyer
	twice    []string          // buyers who were given different orders
	held     map[string]string // buyer -> order
	requests int64
	gaveUp   [groups]int64 // people who were told to come back once too often, by what they were told last
	lastWon  time.Duration
	soldOut  time.Duration // the first time anybody heard of it; 0: nobody has
}

func newTally() *tally {
	return &tally{
		people: map[Outcome]*hdrhistogram.Histogram{}, bots: map[Outcome]*hdrhistogram.Histogram{}, all: newTimes(digits), late: newTimes(digits), looks: newTimes(digits),
		rows: newTimes(digits), rules: map[string][2]int64{}, seconds: map[int]*second{}, orders: map[string]string{}, held: map[string]string{},
	}
}

func (t *tally) add(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	by := t.people
	if a.kind.Bot() {
		by = t.bots
	}
	if by[a.outcome] == nil {
		by[a.outcome] = newTimes(digits)
	}
	note(by[a.outcome], a.took)
	s := t.second(a.at)
	s.sent[a.outcome.Of()]++
	if !a.kind.Bot() {
		note(t.late, a.late) // a bot may be late because its last answer was
	}
	if !a.kind.Bot() && a.outcome.Of() != Failed {
		note(t.all, a.took)
		note(s.people, a.took)
	}
	if a.outcome == Limited {
		n := t.rules[a.rule]
		if a.kind.Bot() {
			n[1]++
		} else {
			n[0]++
		}
		t.rules[a.rule] = n
	}
	switch ended := a.at + a.took; {
	case a.outcome == Accepted:
		t.lastWon = max(t.lastWon, ended)
	case a.outcome == SoldOut && (t.soldOut == 0 || ended < t.soldOut):
		t.soldOut = ended
	}
}

// second is the second of an instant; those before the opening are negative.
func (t *tally) second(at time.Duration) *second {
	i := int(at / time.Second)
	if at < 0 {
		i = int((at - time.Second + 1) / time.Second)
	}
	s := t.seconds[i]
	if s == nil {
		s = &second{people: newTimes(2)}
		t.seconds[i] = s
	}
	return s
}

// won notes an order that somebody was told of, also a second time.
func (t *tally) won(buyer, order string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orders[order] = buyer
	if before, ok := t.held[buyer]; ok && before != order {
		t.twice = append(t.twice, buyer)
	}
	t.held[buyer] = order
}

func (t *tally) looked(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.looks, took)
}

func (t *tally) row(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.rows, took)
}

func (t *tally) giveUp(told Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gaveUp[told.Of()]++
}

// Progress is how far a rehearsal is.
type Progress struct {
	At       time.Duration // from the opening; negative before it
	Actors   int           // who have come
	Of       int
	Requests int64
	Accepted int64
	Groups   [groups]int64 // requests by group
	P50, P99 time.Duration // of people's answers so far
	Left     int64         // units; -1: not known
	Queued   int64         // orders that are not rows yet; -1: not known
	Says     string        // what is being done
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
	p.P50, p.P99 = quantile(t.all, 50), quantile(t.all, 99)
	return p
}

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}

// Times sums up how long something took, in seconds.
type Times struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_seconds"`
	P95   float64 `json:"p95_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

func timesOf(h *hdrhistogram.Histogram) Times {
	at := func(q float64) float64 { return quantile(h, q).Seconds() }
	return Times{Count: h.TotalCount(), P50: at(50), P95: at(95), P99: at(99), Max: (time.Duration(h.Max()) * time.Microsecond).Seconds()}
}

// OutcomeTimes are the times of one outcome.
type OutcomeTimes struct {
	Outcome Outcome `json:"outcome"`
	Times
}

// byOutcome lists outcomes, the most frequent first.
func byOutcome(of map[Outcome]*hdrhistogram.Histogram) []OutcomeTimes {
	list := make([]OutcomeTimes, 0, len(of))
	for o, h := range of {
		list = append(list, OutcomeTimes{o, timesOf(h)})
	}
	slices.SortFunc(list, func(a, b OutcomeTimes) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return slices.Compare([]byte(a.Outcome), []byte(b.Outcome))
	})
	return list
}
