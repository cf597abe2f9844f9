// Package replay applies a policy to recorded traffic, and reports which requests each rule would refuse. It reads
// access logs of both edges and nginx's combined format, sorts the requests by arrival, and evaluates them with the
// limiter of the gateway and the time of the log.
//
// It does not predict how clients react to other decisions. The buyer of a request is unknown unless a rule by token
// applied when the log was written.
package replay

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// Config configures a replay. New and Inputs are required.
type Config struct {
	New, Old         *policy.Policy // Old may be nil
	NewName, OldName string         // names of the policies in the report
	Inputs           []Input
	Window           time.Duration // within which lines are sorted; default DefaultWindow
	Buckets          int           // capacity of each policy; default DefaultBuckets
	Top              int           // keys with the most refusals to report; default 10
	Keys             int           // keys to count exactly; default 1<<18
}

// Input is an access log, as text or gzip. Its Reader is read to the end by one goroutine.
type Input struct {
	Name   string
	Reader io.Reader
}

// Defaults.
const (
	DefaultWindow  = 40 * time.Second // the longest request: see gateway.Config.WaitTimeout
	DefaultBuckets = 1 << 19          // capacity of the default zone of the nginx edge, 64 MB
	maxHeld        = 1 << 18          // entries being sorted, of all inputs
	batchSize      = 512
	maxBadShown    = 5
	evictEvery     = 5000 // ms of the log
)

// ErrNothing is wrapped by the error of Run if the logs contain no valid line.
var ErrNothing = errors.New("not an access log")

// Run replays the logs. Invalid lines are counted; Run returns an error if there are no others. An input that ends
// with a read error is evaluated up to there and mentioned in the notes; Run returns an error if it has no lines.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.defaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newReplayer(c)
	streams := make([]*stream, len(c.Inputs))
	for i, input := range c.Inputs {
		streams[i] = newStream(input, t, c.Window.Milliseconds(), max(maxHeld/len(c.Inputs), 1024))
		go streams[i].run(ctx)
	}
	if err := t.run(ctx, streams); err != nil {
		return nil, err
	}
	return t.report(c, streams)
}

func (c *Config) defaults() {
	c.Window = cmp.Or(max(c.Window, 0), DefaultWindow)
	c.Buckets = cmp.Or(max(c.Buckets, 0), DefaultBuckets)
	c.Top = cmp.Or(max(c.Top, 0), 10)
	c.Keys = cmp.Or(max(c.Keys, 0), 1<<18)
}

// replayer evaluates one or two policies and counts over both.
type replayer struct {
	runs       []*policyRun // of the new policy, and of the old one if there is one
	names      limit.Namer
	addresses  *keyTable
	buyers     *keyTable
	requests   int64
	coarse     int64
	from, to   int64
	evictAt    int64 // when empty buckets are evicted next, in ms of the log
	perSecond  perSecond
	difference Difference
}

func newReplayer(c Config) *replayer {
	t := &replayer{names: limit.NewNamer(), addresses: newKeyTable(c.Keys), buyers: newKeyTable(c.Keys),
		difference: Difference{OnlyNewRule: map[string]int64{}, OnlyOldRule: map[string]int64{}}}
	for _, p := range []*policy.Policy{c.New, c.Old} {
		if p != nil {
			t.runs = append(t.runs, newPolicyRun(p, c.Buckets))
		}
	}
	return t
}

// run processes the entries of all streams in the order of their time.
func (t *replayer) run(ctx context.Context, streams []*stream) error {
	for _, s := range streams {
		s.advance(ctx)
	}
	for ctx.Err() == nil {
		var first *stream
		for _, s := range streams {
			if s.current != nil && (first == nil || s.current.at < first.current.at) {
				first = s
			}
		}
		if first == nil {
			break
		}
		t.process(first.current)
		first.advance(ctx)
	}
	t.perSecond.end()
	for _, s := range t.runs {
		s.perSecond.end()
	}
	return ctx.Err()
}

func (t *replayer) process(e *entry) {
	if t.requests == 0 {
		t.from, t.to = e.at, e.at
	}
	t.requests++
	t.from, t.to = min(t.from, e.at), max(t.to, e.at)
	if e.coarse {
		t.coarse++
	}
	if t.to >= t.evictAt {
		t.evictAt = t.to + evictEvery
		for _, s := range t.runs {
			s.table.Evict(instant(t.to)) // the empty buckets
		}
	}
	t.perSecond.add(t.to, 1)
	ip := limit.Address(e.client)
	address := t.addresses.count(ip, addressName(e.client))
	var buyerKey limit.Key
	var buyer *keyCounts
	if e.buyer != "" {
		buyerKey = t.names.Text(e.buyer)
		buyer = t.buyers.count(buyerKey, keyName{buyer: e.buyer})
	}
	var refusedBy [2]*rule
	for i, s := range t.runs {
		n := int64(0)
		if r := s.judge(e, e.covers[i], ip, buyerKey); r != nil {
			n, refusedBy[i] = 1, r
			c := address
			if r.Key == policy.ByToken {
				c = buyer
			}
			c.refused[i]++
			c.rule[i] = r
		}
		s.perSecond.add(t.to, n)
	}
	if len(t.runs) > 1 {
		t.compare(refusedBy, address, buyer)
	}
}

func (t *replayer) compare(refusedBy [2]*rule, address, buyer *keyCounts) {
	d := &t.difference
	only := func(side int, count *int64, byRule map[string]int64) {
		*count++
		r := refusedBy[side]
		byRule[r.Name]++
		if r.Key == policy.ByToken {
			buyer.only[side]++
		} else {
			address.only[side]++
		}
	}
	switch {
	case refusedBy[0] != nil && refusedBy[1] != nil:
		d.BothRefuse++
	case refusedBy[0] != nil:
		only(0, &d.OnlyNew, d.OnlyNewRule)
	case refusedBy[1] != nil:
		only(1, &d.OnlyOld, d.OnlyOldRule)
	default:
		d.BothPass++
	}
}
