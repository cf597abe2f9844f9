package replay

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"sluice/internal/plural"
)

// Report is the result of a replay. Shares are between 0 and 1.
type Report struct {
	Lines        int64 `json:"lines"`
	BadLines     int64 `json:"bad_lines"`
	Bad          []Bad `json:"bad,omitempty"` // the first ones
	Requests     int64 `json:"requests"`      // for which rules were evaluated, or would have been
	NotEvaluated int64 `json:"not_evaluated"` // answered by the edge itself: malformed, reserved paths, concurrency
	Cached       int64 `json:"cached"`        // answered from the refusal cache, before any rule
	OutOfOrder   int64 `json:"out_of_order"`  // lines after one with a later arrival
	Late         int64 `json:"late"`          // of these, lines outside the window: evaluated as if they had arrived later

	From          *time.Time `json:"from,omitempty"`
	To            *time.Time `json:"to,omitempty"`
	WholeSeconds  int64      `json:"whole_seconds"` // requests with a resolution of seconds
	RefusedBefore int64      `json:"refused_before"`
	Unauthorized  int64      `json:"unauthorized_before"`
	Unavailable   int64      `json:"unavailable_before"` // 503: a bucket could not be used

	PerSecond  Percentiles   `json:"requests_per_second"` // over seconds with requests
	Policy     PolicyReport  `json:"policy"`
	Against    *PolicyReport `json:"against,omitempty"`
	Difference *Difference   `json:"difference,omitempty"`
	Notes      []string      `json:"notes,omitempty"`
}

// Bad is an invalid line.
type Bad struct {
	File string `json:"file"`
	Line int64  `json:"line"`
	Why  string `json:"why"`
	Text string `json:"text"` // its beginning
}

// PolicyReport is the result of one policy.
type PolicyReport struct {
	File             string       `json:"file"`
	Passed           int64        `json:"passed"`
	Refused          int64        `json:"refused"`      // 429
	NoBucket         int64        `json:"no_bucket"`    // 503: more buckets needed than available
	Unauthorized     int64        `json:"unauthorized"` // 401, as in the log
	RefusedShare     float64      `json:"refused_share"`
	Rules            []RuleCounts `json:"rules"`
	Addresses        KeyShares    `json:"addresses"`
	Buyers           KeyShares    `json:"buyers"`
	RefusedPerSecond Percentiles  `json:"refused_per_second"` // over seconds with requests
	Top              []TopKey     `json:"top"`
}

// RuleCounts is the result of one rule. A request that an earlier rule refuses is counted as covered only.
type RuleCounts struct {
	Name          string  `json:"name"`
	Key           string  `json:"key"`
	Mode          string  `json:"mode"`
	Covered       int64   `json:"covered"` // requests that it matches
	Passed        int64   `json:"passed"`
	Refused       int64   `json:"refused"`
	ShadowRefused int64   `json:"shadow_refused"` // exceeded, by a shadow rule
	Delayed       int64   `json:"delayed"`
	LongestDelay  float64 `json:"longest_delay_seconds"`
	NoBucket      int64   `json:"no_bucket"`
	NoBuyer       int64   `json:"no_buyer"` // the buyer is unknown: the rule was not evaluated
}

// KeyShares is the distribution of refusals over keys: percentiles of the refused share of a key's requests.
type KeyShares struct {
	Keys    int     `json:"keys"`
	Refused int     `json:"refused_keys"`
	Sampled bool    `json:"sampled"` // there were more keys than Config.Keys: estimates from a sample
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

// TopKey is a key with many refusals.
type TopKey struct {
	Kind     string  `json:"kind"`
	Key      string  `json:"key"`
	Requests uint32  `json:"requests"`
	Refused  uint32  `json:"refused"` // in a difference: by this policy only
	Share    float64 `json:"share"`
	Rule     string  `json:"rule"` // of the last refusal
}

// Difference is the change from the old policy to the new one.
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

func (t *replayer) report(c Config, streams []*stream) (*Report, error) {
	r := &Report{Requests: t.requests, WholeSeconds: t.coarse, PerSecond: t.perSecond.percentiles()}
	for _, s := range streams {
		s.addTo(r)
	}
	if r.Lines > 0 && r.Lines == r.BadLines {
		b := r.Bad[0]
		lines := plural.Count(r.Lines, "line")
		return nil, fmt.Errorf("%w: none of %s is valid; %s:%d: %s", ErrNothing, lines, b.File, b.Line, b.Why)
	}
	if r.Lines == 0 {
		for _, s := range streams {
			if s.readError != nil {
				return nil, fmt.Errorf("%w: reading %s failed: %w", ErrNothing, s.input.Name, s.readError)
			}
		}
	}
	if t.requests > 0 {
		from, to := time.UnixMilli(t.from).UTC(), time.UnixMilli(t.to).UTC()
		r.From, r.To = &from, &to
	}
	r.Policy = t.policyReport(c, 0, c.NewName)
	if len(t.runs) > 1 {
		against := t.policyReport(c, 1, c.OldName)
		r.Against, r.Difference = &against, &t.difference
		r.Difference.OnlyNewTop = t.tops(c.Top, 0, func(k *keyCounts) uint32 { return k.only[0] })
		r.Difference.OnlyOldTop = t.tops(c.Top, 1, func(k *keyCounts) uint32 { return k.only[1] })
	}
	r.Notes = append(r.Notes, t.notes(c, r)...)
	return r, nil
}

func (t *replayer) policyReport(c Config, i int, file string) PolicyReport {
	s := t.runs[i]
	r := PolicyReport{File: file, Passed: s.passed, Refused: s.refused, NoBucket: s.noBucket, Unauthorized: s.unauthorized,
		Addresses: t.addresses.shares(i), Buyers: t.buyers.shares(i), RefusedPerSecond: s.perSecond.percentiles(),
		Top: t.tops(c.Top, i, func(k *keyCounts) uint32 { return k.refused[i] }), Rules: []RuleCounts{}}
	if t.requests > 0 {
		r.RefusedShare = float64(s.refused) / float64(t.requests)
	}
	for _, rule := range s.rules {
		r.Rules = append(r.Rules, rule.counts)
	}
	return r
}

// tops returns the n keys of both kinds with the highest count, without those that have 0.
func (t *replayer) tops(n, side int, count func(*keyCounts) uint32) []TopKey {
	var all []*keyCounts
	for _, table := range []*keyTable{t.addresses, t.buyers} {
		for _, k := range table.keys {
			if count(k) > 0 {
				all = append(all, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b *keyCounts) int {
		return cmp.Or(cmp.Compare(count(b), count(a)), cmp.Compare(a.name.kind(), b.name.kind()),
			cmp.Compare(a.name.String(), b.name.String()))
	})
	tops := []TopKey{} // a list in JSON also if it is empty
	for _, k := range all[:min(n, len(all))] {
		top := TopKey{Kind: string(k.name.kind()), Key: k.name.String(), Requests: k.requests, Refused: count(k)}
		top.Share = float64(top.Refused) / float64(top.Requests)
		if k.rule[side] != nil {
			top.Rule = k.rule[side].Name
		}
		tops = append(tops, top)
	}
	return tops
}

// notes returns the limitations of the result.
func (t *replayer) notes(c Config, r *Report) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.Lines == 0 {
		note("the log is empty (nginx writes its log once a second)")
	}
	if r.WholeSeconds > 0 {
		note("%s from a log with a resolution of seconds: distributed evenly over the second",
			plural.Count(r.WholeSeconds, "request"))
	}
	noBuyer := int64(0)
	for _, s := range t.runs {
		for _, rule := range s.rules {
			noBuyer = max(noBuyer, rule.counts.NoBuyer)
		}
	}
	if noBuyer > 0 {
		note("%s with an unknown buyer: not evaluated by rules with key = \"token\". "+
			"A log contains buyers only if a rule by token applied when it was written; the combined format never does",
			plural.Count(noBuyer, "request"))
	}
	if r.Late > 0 {
		note("%s more than %v out of order: evaluated as if the requests had arrived later, see --window",
			plural.Count(r.Late, "line"), c.Window)
	}
	if r.Policy.NoBucket > 0 || r.Against != nil && r.Against.NoBucket > 0 {
		note("more than %d buckets were needed: requests without a bucket are reported separately, see --buckets", c.Buckets)
	}
	if r.Policy.Addresses.Sampled || r.Policy.Buyers.Sampled {
		note("there are too many keys to count them all: percentiles are estimates from a sample, and the counts of top " +
			"keys may be too low")
	}
	if r.Cached > 0 && (c.New.NoRefusalCache || c.Old != nil && c.Old.NoRefusalCache) {
		note("%s from the cache: not evaluated, but would be with repeat_refusals = false", plural.Count(r.Cached, "refusal"))
	}
	if c.Old != nil && !slices.Equal(c.New.TrustedProxies, c.Old.TrustedProxies) {
		note("trusted_proxies differ: the result uses the client addresses of the log, and does not include this change")
	}
	return notes
}
