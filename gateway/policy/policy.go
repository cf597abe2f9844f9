// Package policy reads the edge policy, lua/policy.lua: which rates the edge allows, keyed by what, on which requests. The file is Lua and
// is run as Lua, but with no libraries, few instructions and little room, so that a policy can compute nothing but a table.
//
// The package decides whether a policy is good and says what it means. It never limits anything itself and knows no HTTP library.
package policy

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Bounds of a policy. They are far above what an edge needs and far below what could hurt it.
const (
	MaxSize    = 64 << 10  // bytes of source
	MaxRules   = 64        // every request is looked at by every rule
	MaxProxies = 1024      // entries of trusted_proxies
	MaxBurst   = 1_000_000 // requests
	MaxRate    = 1_000_000 // requests per second
)

// Key says what a rule counts by.
type Key string

// The keys.
const (
	ByIP    Key = "ip"    // client address: IPv4 whole, IPv6 by /64
	ByToken Key = "token" // verified subject of the buyer's token
)

// Mode says whether a rule may refuse.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // counted and logged in a bucket of its own, never enforced
)

// OnError says what a rule does with a request whose bucket cannot be read or written.
type OnError string

// The answers to a bucket that is not there.
const (
	Deny  OnError = "deny"
	Allow OnError = "allow"
)

// Policy is what a policy file says. The zero value limits nothing and trusts nobody.
type Policy struct {
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed; IPv4-mapped prefixes are written as IPv4
	Rules          []Rule
	NoRefusalCache bool // repeat_refusals = false: sale-wide refusals are not cached
}

// Rule is one limit. Rules are comparable: two equal rules are the same rule and may share their buckets.
type Rule struct {
	Name    string // unique in its policy; letters, digits, "-" and "_"
	Key     Key
	Rate    Rate
	Burst   int // requests above the rate that are let through before the rule refuses
	Match   Match
	Delay   bool // slow requests within the burst down to the rate, instead of passing them at once
	Mode    Mode
	OnError OnError
}

// Mistake is one thing that is wrong with a policy.
type Mistake struct {
	File string
	Line int // from 1; 0 when it belongs to no line
	What string
}

func (m Mistake) Error() string {
	if m.Line == 0 {
		return m.File + ": " + m.What
	}
	return fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.What)
}

// Mistakes is everything that is wrong with a policy, in the order of the file, one line each.
type Mistakes []Mistake

func (ms Mistakes) Error() string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// Read reads and validates the policy file at path. What is wrong with its content is a Mistakes.
func Read(path string) (*Policy, error) {
	source, err := Source(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, source)
}

// Check says what is wrong with the policy file at path, or nil.
func Check(path string) error {
	_, err := Read(path)
	return err
}

// Parse reads and validates a policy; name stands for the file in what it says about mistakes. Its error is a Mistakes.
func Parse(name string, source []byte) (*Policy, error) {
	p, _, err := parseSource(name, source)
	return p, err
}

// written is where the parts of a policy are in its file, and what it took to run it.
type written struct {
	proxies, rules int   // lines
	rule           []int // lines, of each rule
	steps          int
}

func parseSource(name string, source []byte) (*Policy, written, error) {
	table, where, steps, mistakes := run(name, source)
	if len(mistakes) > 0 {
		return nil, written{}, mistakes
	}
	r := reader{file: name, written: written{steps: steps}}
	p := r.policy(table, where)
	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return a.Line - b.Line })
		return nil, written{}, r.mistakes
	}
	return p, r.written, nil
}

// Source is the text of the policy file at path, for Parse. Its error is a Mistakes. Only a regular file is read: another process can keep whoever opens
// a pipe waiting for ever.
func Source(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(path, reason(err))
	case info.IsDir():
		return nil, unreadable(path, "it is a folder")
	case !info.Mode().IsRegular():
		return nil, unreadable(path, "it is not a regular file")
	}
	return load(path)
}

// load reads one byte more than a policy may have, so that Parse can tell a policy that is too large from one that just fits.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, reason(err))
	}
	defer f.Close()
	source, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, unreadable(path, reason(err))
	}
	return source, nil
}

func unreadable(path, why string) error {
	return Mistakes{{File: path, What: "cannot be read: " + why}}
}

// reason is an error of the file system without the path, which the mistake names already.
func reason(err error) string {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}
