package policy

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// reader converts the values of a policy to a Policy, and collects all findings.
type reader struct {
	file     string
	findings Findings
	lines    sourceLines
}

// report adds a finding, once for each line: several rules may use one local.
func (r *reader) report(where value, format string, args ...any) {
	found := Finding{File: r.file, Line: where.line, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(r.findings, found) {
		r.findings = append(r.findings, found)
	}
}

func (r *reader) policy(t value) *Policy {
	r.checkFields(t, "a policy", "trusted_proxies", "rules", "repeat_refusals")
	p := &Policy{NoRefusalCache: !r.flag(t, "repeat_refusals", true)}
	r.lines.proxies = t.field("trusted_proxies").line
	for _, v := range r.list(t, "trusted_proxies", MaxProxies) {
		if prefix, ok := r.proxy(v); ok {
			p.TrustedProxies = append(p.TrustedProxies, prefix)
		}
	}
	rules := t.field("rules")
	if rules.data == nil {
		r.report(t, "rules is missing: write rules = {} to limit nothing")
	}
	r.lines.rules = rules.line
	seen := map[string]int{}
	for i, v := range r.list(t, "rules", MaxRules) {
		rule, ok := r.rule(v)
		if !ok {
			continue
		}
		if first := seen[rule.Name]; first > 0 {
			r.report(v.field("name"), "rule %d is named %s like rule %d: names must differ", i+1, quote(rule.Name), first)
		} else if rule.Name != "" {
			seen[rule.Name] = i + 1
		}
		p.Rules = append(p.Rules, rule)
		r.lines.rule = append(r.lines.rule, v.line)
	}
	return p
}

func (r *reader) proxy(v value) (netip.Prefix, bool) {
	s, ok := v.data.(string)
	if !ok {
		r.report(v, `trusted_proxies holds strings such as "10.0.0.0/8", and not %s`, describe(v.data))
		return netip.Prefix{}, false
	}
	prefix, ok := ParseNetwork(s)
	if !ok {
		r.report(v, `trusted_proxies: %s is not a network such as "10.0.0.0/8" or "2001:db8::/32"`, quote(s))
	}
	return prefix, ok
}

// ParseNetwork parses a network, or an address as a network of its own. It converts IPv4-mapped networks to IPv4.
func ParseNetwork(text string) (network netip.Prefix, ok bool) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false
		}
		network = netip.PrefixFrom(addr, addr.BitLen())
	}
	if addr := network.Addr(); addr.Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, false
		}
		network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
	}
	return network.Masked(), true
}

var (
	ruleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)
	rateForm = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,6})?)r/([smh])$`)
	longRate = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?r/[smh]$`)
)

func (r *reader) rule(t value) (Rule, bool) {
	if _, ok := t.data.(*table); !ok {
		r.report(t, "a rule is a table, and not %s", describe(t.data))
		return Rule{}, false
	}
	r.checkFields(t, "a rule", "name", "key", "rate", "burst", "match", "delay", "mode", "on_error", "ipv6_prefix",
		"scope")
	rule := Rule{Name: r.text(t, "name")}
	if rule.Name == "" {
		if t.field("name").data == nil {
			r.report(t, "a rule needs a name, which logs and refusals contain")
		}
	} else if !ruleName.MatchString(rule.Name) {
		r.report(t.field("name"),
			`name %s must be 1 to 32 letters, digits, "-" or "_", the first a letter or a digit`, quote(rule.Name))
	} else if rule.Name == ConcurrencyRule {
		r.report(t.field("name"), `name %s is reserved for the limit of concurrent requests: choose another`,
			quote(rule.Name))
	}
	rule.Key = Key(r.choice(t, "key", "", string(ByIP), string(ByToken)))
	rule.Rate = r.rate(t)
	rule.Burst = r.burst(t)
	r.checkCapacity(rule, t)
	rule.Match = r.match(t)
	rule.Delay = r.flag(t, "delay", false)
	rule.Mode = Mode(r.choice(t, "mode", string(Enforce), string(Enforce), string(Shadow)))
	rule.OnError = OnError(r.choice(t, "on_error", string(Deny), string(Deny), string(Allow)))
	rule.IPv6Prefix = r.ipv6Prefix(t, rule.Key)
	rule.Fleet = r.choice(t, "scope", scopeEdge, scopeEdge, scopeFleet) == scopeFleet
	if rule.Fleet {
		r.checkFleet(rule, t)
	}
	return rule, true
}

// ConcurrencyRule is the name that logs, metrics and refusals use for the edge's limit of concurrent requests of a
// client. No rule of a policy may have it.
const ConcurrencyRule = "concurrency"

// rate returns the zero value for a rate that it has reported.
func (r *reader) rate(t value) Rate {
	s, ok := typed[string](r, t, "rate", `a string such as "20r/s"`)
	if !ok {
		if t.field("rate").data == nil {
			r.report(t, `a rule needs a rate such as "20r/s"`)
		}
		return Rate{}
	}
	at := t.field("rate")
	m := rateForm.FindStringSubmatch(s)
	if m == nil && longRate.MatchString(s) {
		r.report(at, "rate %s has too many digits: write at most 9 before the point and 6 after it", quote(s))
		return Rate{}
	}
	if m == nil {
		r.report(at, `rate %s is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h`, quote(s))
		return Rate{}
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	rate := Rate{Requests: n, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]}
	switch {
	case n == 0:
		r.report(at, `rate %s must be more than zero: "1r/h" admits almost nothing`, quote(s))
	case rate.PerSecond() > MaxRate:
		r.report(at, "rate %s is more than %d requests a second: remove the rule to limit nothing", quote(s),
			MaxRate)
		return Rate{}
	}
	return rate
}

func (r *reader) burst(t value) int {
	f, ok := typed[float64](r, t, "burst", "a whole number")
	if !ok {
		return 0
	}
	if f != math.Trunc(f) || f < 0 || f > MaxBurst {
		r.report(t.field("burst"), "burst must be a whole number from 0 to %d, and is %s", MaxBurst, number(f))
		return 0
	}
	return int(f)
}

func (r *reader) ipv6Prefix(t value, key Key) int {
	field := t.field("ipv6_prefix")
	if field.data == nil && key == ByToken {
		return 0
	}
	n, ok := field.data.(float64)
	switch {
	case field.data == nil:
		return DefaultIPv6Prefix
	case key == ByToken:
		r.report(field, `ipv6_prefix is for rules with key = "ip": remove it`)
	case !ok || n != 64 && n != 56 && n != 48:
		r.report(field, "ipv6_prefix must be 64, 56 or 48, and is %s", describe(field.data))
	default:
		return int(n)
	}
	return DefaultIPv6Prefix
}

// checkCapacity reports a burst for which the nginx edge could not store the backlog as an exact integer.
func (r *reader) checkCapacity(rule Rule, t value) {
	if rule.Rate.Requests == 0 {
		return
	}
	if _, period := rule.Rate.Fraction(); float64(rule.Burst+1)*float64(period) > maxBacklog {
		r.report(t, "burst %d at this rate takes %.0f years to refill: lower the burst or raise the rate", rule.Burst,
			math.Floor(float64(rule.Burst+1)/rule.Rate.PerSecond()/(365*24*3600)))
	}
}

// minFleetWindow is the minimum of burst / rate of a rule of the fleet, in us. An edge may spend a leased slot within
// this time. If the time were shorter, slots would expire before edges could spend them.
const minFleetWindow = 10_000

// checkFleet reports fields that rules of the fleet cannot have.
func (r *reader) checkFleet(rule Rule, t value) {
	if rule.Delay {
		r.report(t.field("delay"), `delay is for rules with scope = "edge": remove it`)
	}
	if rule.Rate.Requests == 0 {
		return
	}
	count, period := rule.Rate.Fraction()
	least := max(1, math.Ceil(minFleetWindow*float64(count)/float64(period)))
	if float64(rule.Burst) < least {
		r.report(t.field("burst"), `a rule with scope = "fleet" needs a burst of at least %.0f at this rate, and has %d`,
			least, rule.Burst)
	}
}

var methodForm = regexp.MustCompile(`^[A-Z]{1,20}$`)

func (r *reader) match(t value) Match {
	if _, ok := typed[*table](r, t, "match", `a table such as { method = "POST", path = "/v1/sales/*/orders" }`); !ok {
		return Match{}
	}
	m := t.field("match")
	r.checkFields(m, "match", "method", "path")
	match := Match{Method: r.text(m, "method")}
	if match.Method != "" && !methodForm.MatchString(match.Method) {
		r.report(m.field("method"), `method %s is not an HTTP method in capitals such as "POST"`, quote(match.Method))
	}
	if match.Path = r.text(m, "path"); match.Path != "" {
		if what := badPattern(match.Path); what != "" {
			r.report(m.field("path"), "path %s %s", quote(match.Path), what)
		}
	}
	return match
}
