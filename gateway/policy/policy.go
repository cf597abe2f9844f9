// Package policy reads the edge policy (lua/policy.lua), which defines the rate limits of the edge. The file is written
// in a subset of Lua that computes nothing, and is not executed.
//
// The package parses and validates a policy. It does not apply limits, and does not depend on an HTTP library.
package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// Limits of a policy. They are far above what an edge needs, and far below what would overload it.
const (
	MaxSize    = 64 << 10  // bytes of source
	MaxRules   = 64        // every request is matched against every rule
	MaxProxies = 1024      // entries of trusted_proxies
	MaxBurst   = 1_000_000 // requests
	MaxRate    = 1_000_000 // requests per second
)

// DefaultIPv6Prefix is the smallest network that providers assign to a customer.
const DefaultIPv6Prefix = 64

// Key is what a rule counts by.
type Key string

// The keys.
const (
	ByIP    Key = "ip"    // client address: the whole address for IPv4, the network of IPv6Prefix bits for IPv6
	ByToken Key = "token" // verified subject of the buyer's token
)

// Mode is whether a rule refuses requests.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // counts and logs, with its own buckets, but never refuses
)

// OnError is what happens to a request for which no bucket is available.
type OnError string

// The values of OnError.
const (
	Deny  OnError = "deny"
	Allow OnError = "allow"
)

// Policy is the content of a policy file. The zero value has no limits and trusts no proxies.
type Policy struct {
	TrustedProxies []netip.Prefix // X-Forwarded-For of these proxies is used; IPv4-mapped prefixes are converted to IPv4
	Rules          []Rule
	NoRefusalCache bool // repeat_refusals = false: sale-wide refusals are not cached
}

// Rule is a rate limit. Rules are comparable.
type Rule struct {
	Name    string // unique in its policy; letters, digits, "-" and "_"
	Key     Key
	Rate    Rate
	Burst   int // requests above the rate that are admitted
	Match   Match
	Delay   bool // delay requests within the burst to the rate
	Mode    Mode
	OnError OnError

	// Fleet is scope = "fleet": all edges share the rate. Otherwise each edge has its own buckets.
	Fleet bool

	IPv6Prefix int // of a rule ByIP: bits of an IPv6 address that are one client, 64, 56 or 48; otherwise 0
}

// The values of the field scope.
const (
	scopeEdge  = "edge"
	scopeFleet = "fleet"
)

// Scope returns the value of the field scope.
func (r Rule) Scope() string {
	if r.Fleet {
		return scopeFleet
	}
	return scopeEdge
}

// CheckFleet returns an error, which is Findings, if a rule has scope = "fleet". For edges without a Redis server for
// these rules. name is the file name in findings.
func (p *Policy) CheckFleet(name string) error {
	for _, r := range p.Rules {
		if r.Fleet {
			return Findings{{File: name, Message: fmt.Sprintf(`rule %s has scope = "fleet", which needs a Redis server: `+
				`set SLUICE_LIMIT_REDIS_URL, or --limit-redis of sluice edge and sluice gateway`, quote(r.Name))}}
		}
	}
	return nil
}

// Read reads and validates the policy file at path. Its error is Findings.
func Read(path string) (*Policy, error) {
	source, err := Source(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, source)
}

// Parse parses and validates a policy. name is the file name in findings. Its error is Findings.
func Parse(name string, source []byte) (*Policy, error) {
	p, _, err := parseSource(name, source)
	return p, err
}

// sourceLines are the lines of the parts of a policy.
type sourceLines struct {
	proxies, rules int
	rule           []int // of each rule
}

func parseSource(name string, source []byte) (*Policy, sourceLines, error) {
	v, wrong := parse(name, string(source))
	if wrong != nil {
		return nil, sourceLines{}, Findings{*wrong}
	}
	r := reader{file: name}
	if _, ok := v.data.(*table); !ok {
		r.report(v, "a policy returns a table, and this returns %s: end it with return { rules = { {...} } }",
			describe(v.data))
		return nil, sourceLines{}, r.findings
	}
	p := r.policy(v)
	if len(r.findings) > 0 {
		slices.SortStableFunc(r.findings, func(a, b Finding) int { return a.Line - b.Line })
		return nil, sourceLines{}, r.findings
	}
	return p, r.lines, nil
}
