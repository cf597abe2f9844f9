package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a sort of fault.
type Kind string

// Kinds of faults. On a link of one process to one store: a cut refuses and ends connections; a lost reply belongs to
// a call that took effect; a lost request never arrives; a slow link delays all data; a torn link ends in the middle
// of a message.
const (
	WorkerKilled   Kind = "worker killed"
	WorkerFrozen   Kind = "worker frozen"
	BackendKilled  Kind = "backend killed"
	BackendFrozen  Kind = "backend frozen"
	WatcherKilled  Kind = "watcher killed"
	WatcherFrozen  Kind = "watcher frozen"
	RedisKilled    Kind = "Redis killed"
	RedisFrozen    Kind = "Redis frozen"
	PostgresKilled Kind = "PostgreSQL killed"
	DiskFull       Kind = "disk full"
	LinkCut        Kind = "link cut"
	RepliesLost    Kind = "replies lost"
	RequestsLost   Kind = "requests lost"
	LinkSlow       Kind = "link slow"
	LinkTorn       Kind = "link torn"
)

// deck holds the share of each kind in a hundred faults, in the order of the report.
var deck = []struct {
	kind  Kind
	share int
}{
	{WorkerKilled, 18},
	{WorkerFrozen, 10},
	{BackendKilled, 8},
	{BackendFrozen, 4},
	{WatcherKilled, 6},
	{WatcherFrozen, 3},
	{RedisKilled, 5},
	{RedisFrozen, 2},
	{PostgresKilled, 5},
	{DiskFull, 4},
	{LinkCut, 9},
	{RepliesLost, 8},
	{RequestsLost, 5},
	{LinkSlow, 7},
	{LinkTorn, 6},
}

// Fault is one entry of a schedule.
type Fault struct {
	At     time.Duration // since the run began
	Kind   Kind
	Target int           // which of the kind's processes or links
	For    time.Duration // until it is undone
	Dose   int           // of a slow link ms, of a torn one bytes
}

func (f Fault) String() string {
	return fmt.Sprintf("%8.3fs %s %d for %.3fs", f.At.Seconds(), f.Kind, f.Target, f.For.Seconds())
}

// Cast is how many there are to be hit.
type Cast struct {
	Workers, Backends, Watchers int
	Links                       int
}

func (c Cast) of(k Kind) int {
	switch k {
	case WorkerKilled, WorkerFrozen:
		return c.Workers
	case BackendKilled, BackendFrozen:
		return c.Backends
	case WatcherKilled, WatcherFrozen:
		return c.Watchers
	case LinkCut, RepliesLost, RequestsLost, LinkSlow, LinkTorn:
		return c.Links
	}
	return 1
}

// Draw makes a schedule of n faults over span: of each kind its share, at least one, and all else by chance. The same
// arguments give the same schedule.
func Draw(seed uint64, n int, span, lease time.Duration, cast Cast) []Fault {
	random := rand.New(rand.NewPCG(seed, 0))
	var kinds []Kind
	for _, d := range deck {
		for range max(1, n*d.share/100) {
			kinds = append(kinds, d.kind)
		}
	}
	for len(kinds) < n {
		kinds = append(kinds, deck[random.IntN(len(deck))].kind)
	}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	between := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(random.Int64N(int64(to-from)))).Truncate(time.Millisecond)
	}
	faults := make([]Fault, len(kinds))
	for i, k := range kinds {
		f := Fault{Kind: k, At: between(lead(span), span), Target: random.IntN(cast.of(k))}
		switch k {
		case WorkerFrozen:
			f.For = between(lease*6/5, lease*2) // past its lease
		case BackendFrozen, WatcherFrozen:
			f.For = between(500*time.Millisecond, 4*time.Second)
		case RedisFrozen:
			f.For = between(300*time.Millisecond, 2500*time.Millisecond) // some of them longer than a call may take
		case DiskFull:
			f.For = between(500*time.Millisecond, 3*time.Second)
		case LinkSlow:
			f.For, f.Dose = between(time.Second, 4*time.Second), 20+random.IntN(700)
		case LinkTorn:
			f.For, f.Dose = between(500*time.Millisecond, 3*time.Second), 1+random.IntN(3000)
		case LinkCut, RepliesLost, RequestsLost:
			f.For = between(200*time.Millisecond, 3*time.Second)
		default: // killed: so long it is away
			f.For = between(50*time.Millisecond, 1500*time.Millisecond)
		}
		faults[i] = f
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// lead is how long a run goes undisturbed, so that something is sold whatever comes then.
func lead(span time.Duration) time.Duration { return min(span/10, 3*time.Second) }

// ByKind counts faults in the order of the deck.
func ByKind(faults []Fault) (kinds []Kind, count map[Kind]int) {
	count = map[Kind]int{}
	for _, f := range faults {
		count[f.Kind]++
	}
	for _, d := range deck {
		if count[d.kind] > 0 {
			kinds = append(kinds, d.kind)
		}
	}
	return kinds, count
}
