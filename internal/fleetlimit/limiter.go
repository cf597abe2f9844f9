package fleetlimit

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Result is the result of a lease, for metrics.
type Result string

// The results.
const (
	Granted Result = "granted"
	None    Result = "refused" // Redis had no slot for the edge
	Late    Result = "late"    // all slots were closed on arrival
	Failed  Result = "error"
)

// Results are all results.
var Results = []Result{Granted, None, Late, Failed}

// LimiterConfig configures a Limiter. Client is required.
type LimiterConfig struct {
	Client  *Client
	OnLease func(result Result) // called after each round trip for a lease; default: nothing
	Logger  *slog.Logger        // default: no log
}

// Limiter decides for all keys of one Go edge. Create it with NewLimiter. Safe for concurrent use.
type Limiter struct {
	config LimiterConfig
	seed   maphash.Seed
	shards [shards]shard
	down   atomic.Int64 // time in us until which Redis is not called
	leases sync.WaitGroup

	background chan struct{} // has a value for each call for which no request waits
}

const (
	shards   = 16
	capacity = 1 << 16     // keys, about 30 MB
	pause    = time.Second // without calls after a failed one

	// maxBackground bounds the calls for which no request waits. A client on one processor has ten connections: other
	// leases need some, and a call that waits for one longer than timeout stops the limiter for pause.
	maxBackground = 8
)

type shard struct {
	mu      sync.Mutex
	entries map[name]*entry
}

// name identifies a bucket. Rules with the same name in Redis share buckets, so that buckets survive a change of the
// policy.
type name struct{ rule, key string }

type entry struct {
	Bucket
	shard *shard
	rule  *Rule
	key   string
	done  chan struct{} // closed at the end of the last lease
}

// NewLimiter returns a limiter without leased slots.
func NewLimiter(config LimiterConfig) *Limiter {
	if config.OnLease == nil {
		config.OnLease = func(Result) {}
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	l := &Limiter{config: config, seed: maphash.MakeSeed(), background: make(chan struct{}, maxBackground)}
	for i := range l.shards {
		l.shards[i].entries = map[name]*entry{}
	}
	return l
}

// Decision is the result of Limiter.Take.
type Decision struct {
	Outcome Outcome // Admitted, Refused or Unavailable
	Wait    time.Duration

	entry   *entry
	verdict Verdict
}

// tries bounds the decisions of a request. It decides again after each lease, because other requests may have spent its
// slots.
const tries = 10

// Take decides about one request. If the edge has no slot and Redis may have one, Take leases slots and waits for the
// reply. It refuses a request immediately if Redis is known to have none.
func (l *Limiter) Take(r *Rule, key string) Decision {
	n := name{r.name, key}
	s := &l.shards[maphash.String(l.seed, key)%shards]
	now := l.config.Client.now()
	s.mu.Lock()
	e := s.entries[n]
	if e == nil {
		if len(s.entries) >= capacity/shards {
			s.mu.Unlock()
			return Decision{Outcome: Unavailable}
		}
		e = &entry{shard: s, rule: r, key: strings.Clone(key)}
		s.entries[name{r.name, e.key}] = e
	}
	e.Count(now)
	for range tries {
		v := e.Take(r, now)
		switch v.Outcome {
		case NeedsLease:
			if now < float64(l.down.Load()) {
				s.mu.Unlock()
				return Decision{Outcome: Unavailable}
			}
			done := e.begin(now)
			s.mu.Unlock()
			if !l.lease(e, done, v.Demand) {
				return Decision{Outcome: Unavailable}
			}
		case Wait:
			done := e.done
			s.mu.Unlock()
			<-done
		default:
			if v.Poll && now >= float64(l.down.Load()) {
				l.poll(e, now, v.Demand)
			}
			s.mu.Unlock()
			return Decision{Outcome: v.Outcome, Wait: duration(v.Wait), entry: e, verdict: v}
		}
		now = l.config.Client.now()
		s.mu.Lock()
	}
	s.mu.Unlock()
	return Decision{Outcome: Refused, Wait: time.Second}
}

func duration(us float64) time.Duration { return time.Duration(math.Ceil(us)) * time.Microsecond }

// begin begins a lease and returns a channel that is closed at its end. A lease that begins after leaseTimeout has its
// own channel.
func (e *entry) begin(now float64) chan struct{} {
	e.Begin(now)
	e.done = make(chan struct{})
	return e.done
}

// poll leases in the background, unless many calls are in progress. The lock of the entry's shard must be held.
func (l *Limiter) poll(e *entry, now float64, d Demand) {
	select {
	case l.background <- struct{}{}:
	default:
		return
	}
	done := e.begin(now)
	l.leases.Go(func() {
		l.lease(e, done, d)
		<-l.background
	})
}

// lease leases slots for an entry. begin has returned done.
func (l *Limiter) lease(e *entry, done chan<- struct{}, d Demand) (ok bool) {
	lease, err := l.config.Client.Lease(context.Background(), e.rule, e.key, d)
	now := l.config.Client.now()
	result := Failed
	e.shard.mu.Lock()
	if err != nil {
		e.Fail()
	} else {
		result = e.Apply(e.rule, lease, now)
	}
	close(done)
	e.shard.mu.Unlock()
	if err != nil {
		if before := l.down.Swap(int64(now) + pause.Microseconds()); now >= float64(before) {
			l.config.Logger.Warn("the Redis server of fleet limits cannot be used: on_error of each rule decides", "err", err)
		}
	}
	l.config.Client.warnStarted(l.config.Logger, lease)
	l.config.OnLease(result)
	return err == nil
}

// Refund restores the slot of an admitted request that another rule has rejected.
func (l *Limiter) Refund(d Decision) {
	d.entry.shard.mu.Lock()
	d.entry.Refund(d.verdict)
	d.entry.shard.mu.Unlock()
}

// Sweep returns unneeded slots to Redis and removes idle keys. Call it once a second.
func (l *Limiter) Sweep(ctx context.Context) {
	l.sweep(ctx, func(e *entry, now float64) float64 { return e.Unused(e.rule, now) })
}

// Close returns all slots to Redis and gives up after two seconds. No request may be in progress.
func (l *Limiter) Close() {
	l.leases.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l.sweep(ctx, func(*entry, float64) float64 { return math.Inf(1) })
}

// sweep returns segments whose next slot has opened before the time that unused returns for their key.
func (l *Limiter) sweep(ctx context.Context, unused func(*entry, float64) float64) {
	now := l.config.Client.now()
	for i := range l.shards {
		s := &l.shards[i]
		unspent := map[*entry][]Segment{}
		s.mu.Lock()
		for n, e := range s.entries {
			if e.leasingUntil > now {
				continue
			}
			if segments := e.Return(now, unused(e, now)); len(segments) > 0 {
				unspent[e] = segments
			}
			if e.Empty(now) {
				delete(s.entries, n)
			}
		}
		s.mu.Unlock()
		var returns errgroup.Group
		for e, segments := range unspent {
			l.background <- struct{}{}
			returns.Go(func() error {
				defer func() { <-l.background }()
				return l.returnSlots(ctx, e, segments)
			})
		}
		if returns.Wait() != nil {
			return // the remaining slots count as spent
		}
	}
}

var errDown = errors.New("the Redis server of fleet limits is not called after a failure")

func (l *Limiter) returnSlots(ctx context.Context, e *entry, segments []Segment) error {
	if l.config.Client.now() < float64(l.down.Load()) {
		return errDown
	}
	err := l.config.Client.Return(ctx, e.rule, e.key, segments)
	if err != nil && ctx.Err() == nil { // else the edge stops, and Redis may be available
		l.down.Store(int64(l.config.Client.now()) + pause.Microseconds())
	}
	return err
}
