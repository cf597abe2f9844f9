package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sluice/gateway/policy"
)

// Report is what a replay found. Shares are between 0 and 1.
type Report struct {
	Lines      int64 `json:"lines"`
	BadLines   int64 `json:"bad_lines"`
	Bad        []Bad `json:"bad,omitempty"` // the first few
	Requests   int64 `json:"requests"`      // that rules were asked about, or would have been
	NotAsked   int64 `json:"not_asked"`     // that the edge answered by itself: malformed, hidden, its own health
	Repeated   int64 `json:"repeated"`      // sold-out and the like, answered from memory before any rule
	OutOfOrder int64 `json:"out_of_order"`  // lines after one whose request came later
	Late       int64 `json:"late"`          // of these, those that came too late to be put in order: judged as if they had come later than they did

	From          *time.Time `json:"from,omitempty"`
	To            *time.Time `json:"to,omitempty"`
	WholeSeconds  int64      `json:"whole_seconds"` // requests whose log knows no better: they are spread evenly over their second
	RefusedBefore int64      `json:"refused_before"`
	Unauthorized  int64      `json:"unauthorized_before"`

	PerSecond  Percentiles `json:"requests_per_second"` // over the seconds that have any
	Policy     SideReport  `json:"policy"`
	Against    *SideReport `json:"against,omitempty"`
	Difference *Difference `json:"difference,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
}

// Bad is a line that cannot be read.
type Bad struct {
	File string `json:"file"`
	Line int64  `json:"line"`
	Why  string `json:"why"`
	Text string `json:"text"` // its beginning
}

// SideReport is what one policy makes of the log.
type SideReport struct {
	File             string       `json:"file"`
	Passed           int64        `json:"passed"`
	Refused          int64        `json:"refused"`      // 429
	NoRoom           int64        `json:"no_room"`      // 503: more live buckets than there is room for
	Unauthorized     int64        `json:"unauthorized"` // 401, as it was
	RefusedShare     float64      `json:"refused_share"`
	Rules            []RuleCounts `json:"rules"`
	Addresses        KeyShares    `json:"addresses"`
	Buyers           KeyShares    `json:"buyers"`
	RefusedPerSecond Percentiles  `json:"refused_per_second"` // over the seconds that have any request
	Top              []TopKey     `json:"top"`
}

// RuleCounts is what one rule did. A request that an earlier rule refuses is covered and nothing else.
type RuleCounts struct {
	Name          string  `json:"name"`
	Key           string  `json:"key"`
	Mode          string  `json:"mode"`
	Covered       int64   `json:"covered"` // requests that it looks at
	Passed        int64   `json:"passed"`
	Refused       int64   `json:"refused"`
	ShadowRefused int64   `json:"shadow_refused"` // by a shadow, which lets them pass
	Delayed       int64   `json:"delayed"`
	LongestDelay  float64 `json:"longest_delay_seconds"`
	NoRoom        int64   `json:"no_room"`
	NoBuyer       int64   `json:"no_buyer"` // the log does not say who: the rule was left out
}

// KeyShares is how refusals spread over keys: the percentiles of the share of its requests that a key is refused.
type KeyShares struct {
	Keys    int     `json:"keys"`
	Refused int     `json:"refused_keys"`
	Sampled bool    `json:"sampled"` // more keys than fit: worked out from a sample
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// Percentiles of a count.
type Percentiles struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// TopKey is one of the keys with the most refusals.
type TopKey struct {
	Kind     string  `json:"kind"`
	Key      string  `json:"key"`
	Requests uint32  `json:"requests"`
	Refused  uint32  `json:"refused"` // in a difference: by this policy only
	Share    float64 `json:"share"`
	Rule     string  `json:"rule"` // that refused it last
}

// Difference is what changes from the old policy to the new one.
type Difference struct {
	BothPass    int64            `json:"both_pass"`
	BothRefuse  int64            `json:"both_refuse"`
	OnlyNew     int64            `json:"only_new"` // refused by the new policy and not by the old one
	OnlyOld     int64            `json:"only_old"`
	OnlyNewRule map[string]int64 `json:"only_new_by_rule"`
	OnlyOldRule map[string]int64 `json:"only_old_by_rule"`
	OnlyNewTop  []TopKey         `json:"only_new_top"`
	OnlyOldTop  []TopKey         `json:"only_old_top"`
}

func (t *theatre) report(c Config, streams []*stream) (*Report, error) {
	r := &Report{Requests: t.requests, WholeSeconds: t.coarse, PerSecond: t.perSecond.percentiles()}
	for _, s := range streams {
		s.addTo(r)
	}
	if r.Lines > 0 && r.Lines == r.BadLines {
		b := r.Bad[0]
		return nil, fmt.Errorf("%w: none of %d lines can be read; %s:%d: %s", ErrNothing, r.Lines, b.File, b.Line, b.Why)
	}
	if r.Lines == 0 {
		for _, s := range streams {
			if s.counts.broken != nil {
				return nil, fmt.Errorf("%w: nothing of %s can be read: %w", ErrNothing, s.input.Name, s.counts.broken)
			}
		}
	}
	if t.requests > 0 {
		from, to := time.UnixMilli(t.from).UTC(), time.UnixMilli(t.to).UTC()
		r.From, r.To = &from, &to
	}
	r.Policy = t.side(c, 0, c.NewName)
	if t.sides[1] != nil {
		against := t.side(c, 1, c.OldName)
		r.Against, r.Difference = &against, &t.difference
		r.Difference.OnlyNewTop = t.tops(c.Top, 0, func(k *keyCounts) uint32 { return k.only[0] })
		r.Difference.OnlyOldTop = t.tops(c.Top, 1, func(k *keyCounts) uint32 { return k.only[1] })
	}
	r.Notes = append(r.Notes, t.notes(c, r)...)
	return r, nil
}

func (t *theatre) side(c Config, i int, file string) SideReport {
	s := t.sides[i]
	r := SideReport{File: file, Passed: s.passed, Refused: s.refused, NoRoom: s.noRoom, Unauthorized: s.unauthorized,
		Addresses: t.addresses.shares(i), Buyers: t.buyers.shares(i), RefusedPerSecond: s.perSecond.percentiles(),
		Top: t.tops(c.Top, i, func(k *keyCounts) uint32 { return k.refused[i] })}
	if t.requests > 0 {
		r.RefusedShare = float64(s.refused) / float64(t.requests)
	}
	for _, rule := range s.rules {
		r.Rules = append(r.Rules, rule.count)
	}
	return r
}

// tops are the keys of both kinds with the most of what count says.
func (t *theatre) tops(n, side int, count func(*keyCounts) uint32) []TopKey {
	var tops []TopKey
	for _, from := range []struct {
		kind policy.Key
		keys *keyTable
	}{{policy.ByIP, t.addresses}, {policy.ByToken, t.buyers}} {
		for _, k := range from.keys.tops(n, count) {
			top := TopKey{Kind: string(from.kind), Key: k.name.String(), Requests: k.requests, Refused: count(k)}
			top.Share = float64(top.Refused) / float64(top.Requests)
			if k.rule[side] != nil {
				top.Rule = k.rule[side].Name
			}
			tops = append(tops, top)
		}
	}
	slices.SortStableFunc(tops, func(a, b TopKey) int { return cmp.Compare(b.Refused, a.Refused) })
	return tops[:min(n, len(tops))]
}

// notes say what a reader of the numbers must know.
func (t *theatre) notes(c Config, r *Report) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.Lines == 0 {
		note("the log is empty")
	}
	if r.WholeSeconds > 0 {
		note("%d requests are from a log that knows whole seconds only, and when they ended: they are spread evenly over their second", r.WholeSeconds)
	}
	noBuyer := int64(0)
	for _, s := range t.sides {
		if s == nil {
			continue
		}
		for _, rule := range s.rules {
			noBuyer = max(noBuyer, rule.count.NoBuyer)
		}
	}
	if noBuyer > 0 {
		note("%d requests are covered by a rule with key = \"token\" and the log does not say whose they are: they were not put to it. "+
			"Only a log of an edge that asked for the token then has the buyer; the combined format never has", noBuyer)
	}
	if r.Late > 0 {
		note("%d lines came more than %v after their place in time, and are judged as if they had come when they were read: see --window", r.Late, c.Window)
	}
	if r.Policy.NoRoom > 0 || r.Against != nil && r.Against.NoRoom > 0 {
		note("there were more than %d live buckets at one time: the requests that found no room are told apart, see --buckets", c.Buckets)
	}
	if r.Policy.Addresses.Sampled || r.Policy.Buyers.Sampled {
		note("there are more keys than are counted one by one: percentiles are worked out from a sample, and the counts of top keys may be too low")
	}
	if r.Repeated > 0 && (c.New.NoRefusalCache || c.Old != nil && c.Old.NoRefusalCache) {
		note("%d refusals were repeated from memory and are left out, and with repeat_refusals = false they would have gone the normal way", r.Repeated)
	}
	if c.Old != nil && !slices.Equal(c.New.TrustedProxies, c.Old.TrustedProxies) {
		note("trusted_proxies differ, and the log has addresses as the edge decided on them then: that change is not in these numbers")
	}
	return notes
}
