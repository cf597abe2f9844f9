package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
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

// Kinds of faults of a Redis Cluster. A lost master returns as a replica of the promoted one.
const (
	MasterReplaced   Kind = "replica promoted"
	OldPromoted      Kind = "old replica promoted"
	EmptyPromoted    Kind = "empty replica promoted"
	MasterHandedOver Kind = "master handed over"
	SlotMoved        Kind = "slot moved"
	MoveEndedHalfway Kind = "lost while slot moves"
)

// share is the number of faults of a kind in a hundred.
type share struct {
	kind  Kind
	share int
}

// deck holds the share of each kind, in the order of the report.
var deck = []share{
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

// clusterDeck is deck over a Redis Cluster.
var clusterDeck = []share{
	{WorkerKilled, 12},
	{WorkerFrozen, 6},
	{BackendKilled, 6},
	{BackendFrozen, 4},
	{WatcherKilled, 4},
	{WatcherFrozen, 2},
	{RedisKilled, 4},
	{RedisFrozen, 3},
	{MasterReplaced, 5},
	{OldPromoted, 5},
	{EmptyPromoted, 5},
	{MasterHandedOver, 4},
	{SlotMoved, 8},
	{MoveEndedHalfway, 3},
	{PostgresKilled, 4},
	{DiskFull, 3},
	{LinkCut, 6},
	{RepliesLost, 5},
	{RequestsLost, 3},
	{LinkSlow, 4},
	{LinkTorn, 4},
}

// Fault is one entry of a schedule.
type Fault struct {
	At     time.Duration // since the run began
	Kind   Kind
	Target int           // which of the kind's processes or links
	For    time.Duration // until it is undone
	Dose   int           // of a slow link ms, of a torn one bytes
	// Node is which node of a Redis Cluster a link leads to, from 1 (0: all nodes), and which of the other masters a slot
	// moves to, from 1.
	Node int
}

func (f Fault) String() string {
	return fmt.Sprintf("%8.3fs %s %d/%d for %.3fs", f.At.Seconds(), f.Kind, f.Target, f.Node, f.For.Seconds())
}

// Cast holds the numbers of processes and links that faults can hit.
type Cast struct {
	Workers, Backends, Watchers int
	Links                       int
	Masters                     int // of a Redis Cluster, each with a replica; 0: one Redis
	Shards                      int
}

func (c Cast) deck() []share {
	if c.Masters > 0 {
		return clusterDeck
	}
	return deck
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
	case SlotMoved, MoveEndedHalfway:
		return c.Shards
	case RedisKilled, RedisFrozen, MasterReplaced, OldPromoted, EmptyPromoted, MasterHandedOver:
		return max(c.Masters, 1)
	}
	return 1
}

// Draw returns a schedule of n faults over span: each kind has its share and at least one fault, and all else is
// random. The same arguments give the same schedule.
func Draw(seed uint64, n int, span, lease time.Duration, cast Cast) []Fault {
	random := rand.New(rand.NewPCG(seed, 0))
	var kinds []Kind
	all := cast.deck()
	for _, d := range all {
		for range max(1, n*d.share/100) {
			kinds = append(kinds, d.kind)
		}
	}
	for len(kinds) < n {
		kinds = append(kinds, all[random.IntN(len(all))].kind)
	}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	between := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(random.Int64N(int64(to-from)))).Truncate(time.Millisecond)
	}
	faults := make([]Fault, len(kinds))
	for i, k := range kinds {
		f := Fault{Kind: k, At: between(lead(span), span), Target: random.IntN(cast.of(k))}
		f.For, f.Dose = extent(k, lease, random, between)
		if cast.Masters > 0 {
			f.Node = node(k, cast.Masters, random)
		}
		faults[i] = f
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

// extent draws the duration of a fault, and its dose.
func extent(
	k Kind, lease time.Duration, random *rand.Rand, between func(from, to time.Duration) time.Duration,
) (lasts time.Duration, dose int) {
	switch k {
	case WorkerFrozen:
		return between(lease*6/5, lease*2), 0 // past its lease
	case BackendFrozen, WatcherFrozen:
		return between(500*time.Millisecond, 4*time.Second), 0
	case RedisFrozen:
		return between(300*time.Millisecond, 2500*time.Millisecond), 0 // some of them longer than a call may take
	case DiskFull:
		return between(500*time.Millisecond, 3*time.Second), 0
	case LinkSlow:
		return between(time.Second, 4*time.Second), 20 + random.IntN(700)
	case LinkTorn:
		return between(500*time.Millisecond, 3*time.Second), 1 + random.IntN(3000)
	case LinkCut, RepliesLost, RequestsLost:
		return between(200*time.Millisecond, 3*time.Second), 0
	case OldPromoted: // the replica was disconnected for this time
		return between(300*time.Millisecond, 2500*time.Millisecond), 0
	case SlotMoved: // the shard is on two masters for this time
		return between(10*time.Millisecond, 1500*time.Millisecond), 0
	}
	return between(50*time.Millisecond, 1500*time.Millisecond), 0 // killed: it is down for this time
}

// node draws Fault.Node.
func node(k Kind, masters int, random *rand.Rand) int {
	switch k {
	case SlotMoved, MoveEndedHalfway:
		return 1 + random.IntN(masters-1)
	case LinkCut, RepliesLost, RequestsLost, LinkSlow, LinkTorn:
		return random.IntN(2*masters + 1)
	}
	return 0
}

// lead is the time without faults at the start of a run, so that orders are accepted in any schedule.
func lead(span time.Duration) time.Duration { return min(span/10, 3*time.Second) }

// ByKind counts faults in the order of the deck.
func ByKind(faults []Fault) (kinds []Kind, count map[Kind]int) {
	count = map[Kind]int{}
	for _, f := range faults {
		count[f.Kind]++
	}
	for _, d := range slices.Concat(deck, clusterDeck) {
		if count[d.kind] > 0 && !slices.Contains(kinds, d.kind) {
			kinds = append(kinds, d.kind)
		}
	}
	return kinds, count
}
