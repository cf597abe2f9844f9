// Package replay puts recorded traffic through a policy: who would be refused, and by which rule. It reads access logs of both edges and nginx's
// combined format, puts their requests in the order in which they came, and asks the gateway's own limiter, with the log's time for its clock.
//
// What it cannot know: how those who were let through or refused would have gone on, and which buyer a request was of where no token rule asked.
package replay

import (
	"context"
	"errors"
	"io"
	"time"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
)

// Config is what to replay. New and Inputs are needed.
type Config struct {
	New, Old         *policy.Policy // Old may be nil
	NewName, OldName string         // what the report calls them
	Inputs           []Input
	Window           time.Duration // how far lines are put in order; default DefaultWindow
	Buckets          int           // live buckets of each policy; default DefaultBuckets
	Top              int           // keys to name; default 10
	Keys             int           // keys to count exactly; default 1<<18
}

// Input is one access log, as text or gzipped. Its Reader is read to the end by one goroutine.
type Input struct {
	Name   string
	Reader io.Reader
}

// Defaults.
const (
	DefaultWindow  = 40 * time.Second // the longest an answer may be waited for, see the gateway's WaitTimeout
	DefaultBuckets = 1 << 19          // what the 64 MB zone of the nginx edge holds
	mostHeld       = 1 << 18          // entries that wait for their turn, over all inputs
	batchSize      = 512
	badShown       = 5
	sweepEvery     = 5000 // ms of the log
)

// ErrNothing is wrapped by the error of Run when no line of the logs is an access log's, or none can be read at all.
var ErrNothing = errors.New("not an access log")

// Run replays the logs. Lines that cannot be read are counted; it is an error when there are no others. An input that breaks off is read as far as
// it goes, and named in the notes; it is an error when nothing came before.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.defaults()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newTheatre(c)
	streams := make([]*stream, len(c.Inputs))
	for i, input := range c.Inputs {
		streams[i] = newStream(input, t, c.Window.Milliseconds(), max(mostHeld/len(c.Inputs), 1024))
		go streams[i].run(ctx)
	}
	if err := t.play(ctx, streams); err != nil {
		return nil, err
	}
	return t.report(c, streams)
}

func (c *Config) defaults() {
	if c.Window <= 0 {
		c.Window = DefaultWindow
	}
	if c.Buckets <= 0 {
		c.Buckets = DefaultBuckets
	}
	if c.Top <= 0 {
		c.Top = 10
	}
	if c.Keys <= 0 {
		c.Keys = 1 << 18
	}
}

// theatre is where the logs are replayed: one or two policies, and what is counted over both.
type theatre struct {
	sides      [2]*side // the second may be nil
	names      limit.Namer
	addresses  *keyTable
	buyers     *keyTable
	requests   int64
	coarse     int64
	from, to   int64
	sweep      int64 // when buckets that say nothing any more are to be dropped
	perSecond  perSecond
	difference Difference
}

func newTheatre(c Config) *theatre {
	t := &theatre{names: limit.NewNamer(), addresses: newKeyTable(c.Keys), buyers: newKeyTable(c.Keys),
		difference: Difference{OnlyNewRule: map[string]int64{}, OnlyOldRule: map[string]int64{}}}
	t.sides[0] = newSide(c.New, c.Buckets)
	if c.Old != nil {
		t.sides[1] = newSide(c.Old, c.Buckets)
	}
	return t
}

// play takes the entries of all streams, the earliest first.
func (t *theatre) play(ctx context.Context, streams []*stream) error {
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
		t.take(first.current)
		first.advance(ctx)
	}
	t.perSecond.end()
	for _, s := range t.sides {
		if s != nil {
			s.perSecond.end()
		}
	}
	return ctx.Err()
}

func (t *theatre) take(e *entry) {
	if t.requests == 0 {
		t.from, t.to = e.at, e.at
	}
	t.requests++
	t.from, t.to = min(t.from, e.at), max(t.to, e.at)
	if e.coarse {
		t.coarse++
	}
	if t.to >= t.sweep {
		t.sweep = t.to + sweepEvery
		for _, s := range t.sides {
			s.drop(t.to)
		}
	}
	t.perSecond.add(t.to, 1)
	ip := limit.Address(e.client)
	address := t.addresses.of(ip)
	if address == nil {
		address = t.addresses.add(ip, addressName(e.client))
	}
	address.requests++
	var who limit.Key
	var buyer *keyCounts
	if e.buyer != "" {
		who = t.names.Text(e.buyer)
		if buyer = t.buyers.of(who); buyer == nil {
			buyer = t.buyers.add(who, keyName{buyer: e.buyer})
		}
		buyer.requests++
	}
	var outcomes [2]outcome
	for i, s := range t.sides {
		if s == nil {
			break
		}
		outcomes[i] = s.judge(e, e.covers[i], ip, who)
		n := int64(0)
		if r := outcomes[i].rule; outcomes[i].verdict == refused {
			n = 1
			c := address
			if r.Key == policy.ByToken {
				c = buyer
			}
			c.refused[i]++
			c.rule[i] = r
		}
		s.perSecond.add(t.to, n)
	}
	if t.sides[1] != nil {
		t.compare(outcomes, address, buyer)
	}
}

func (t *theatre) compare(outcomes [2]outcome, address, buyer *keyCounts) {
	d := &t.difference
	only := func(side int, count *int64, byRule map[string]int64) {
		*count++
		r := outcomes[side].rule
		byRule[r.Name]++
		if r.Key == policy.ByToken {
			buyer.only[side]++
		} else {
			address.only[side]++
		}
	}
	switch a, b := outcomes[0].verdict == refused, outcomes[1].verdict == refused; {
	case a && b:
		d.BothRefuse++
	case a:
		only(0, &d.OnlyNew, d.OnlyNewRule)
	case b:
		only(1, &d.OnlyOld, d.OnlyOldRule)
	default:
		d.BothPass++
	}
}
