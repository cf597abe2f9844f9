package edgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Rule is a rule of a policy, as the model reads it.
type Rule struct {
	Name   string `json:"name"`
	Key    string `json:"key"` // "ip" or "token"
	Rate   string `json:"rate"`
	Burst  int64  `json:"burst"`
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	Delay  bool   `json:"delay,omitempty"`
	Shadow bool   `json:"shadow,omitempty"`

	IPv6Prefix int `json:"ipv6_prefix,omitempty"` // 0: 64
}

// Request is one request of a trace.
type Request struct {
	At      int64             `json:"at"` // us, of any clock
	Peer    string            `json:"peer"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers,omitempty"` // "{token:NAME}" stands for a good token of the buyer NAME

	// For the model; an edge determines these values itself.
	Client string `json:"client"`          // the address that the request counts for
	Buyer  string `json:"buyer,omitempty"` // the verified subject
}

// Decision is an edge's decision on a request.
type Decision struct {
	Verdict   string `json:"verdict"`             // allow, deny, unauthorized, or "" where no rule covers the request
	Rule      string `json:"rule,omitempty"`      // that refused, or the tightest that allowed
	Remaining int64  `json:"remaining,omitempty"` // of that rule
	Retry     int64  `json:"retry,omitempty"`     // Retry-After of a refusal, in seconds, without jitter
	Delay     int64  `json:"delay,omitempty"`     // us by which the request is held back, rounded up
	Shadow    string `json:"shadow,omitempty"`    // the last shadow rule that would have refused
	Limit     string `json:"limit,omitempty"`     // the header RateLimit
}

// Step is a request and the decision that it must get.
type Step struct {
	Request
	Want Decision `json:"want"`
}

// Trace is a policy and requests under it, in the order of time.
type Trace struct {
	Name    string   `json:"-"`
	About   string   `json:"about"`
	Trusted []string `json:"trusted,omitempty"`
	Rules   []Rule   `json:"rules"`
	Steps   []Step   `json:"steps"`
}

// Policy returns the policy in the form that the edges read.
func (t *Trace) Policy() string {
	var b strings.Builder
	b.WriteString("return {\n  trusted_proxies = {")
	for _, network := range t.Trusted {
		fmt.Fprintf(&b, " %q,", network)
	}
	b.WriteString(" },\n  rules = {\n")
	for _, r := range t.Rules {
		fmt.Fprintf(&b, "    { name = %q, key = %q, rate = %q, burst = %d, delay = %v", r.Name, r.Key, r.Rate,
			r.Burst, r.Delay)
		if r.Shadow {
			b.WriteString(`, mode = "shadow"`)
		}
		if r.IPv6Prefix != 0 {
			fmt.Fprintf(&b, ", ipv6_prefix = %d", r.IPv6Prefix)
		}
		if r.Method != "" || r.Path != "" {
			b.WriteString(", match = {")
			if r.Method != "" {
				fmt.Fprintf(&b, " method = %q,", r.Method)
			}
			if r.Path != "" {
				fmt.Fprintf(&b, " path = %q,", r.Path)
			}
			b.WriteString(" }")
		}
		b.WriteString(" },\n")
	}
	b.WriteString("  },\n}\n")
	return b.String()
}

// Header returns a header of the request, "" if it has none, with tokens filled in by sign.
func (r *Request) Header(name string, sign func(buyer string) string) string {
	value := r.Headers[name]
	before, rest, found := strings.Cut(value, "{token:")
	if !found {
		return value
	}
	buyer, after, _ := strings.Cut(rest, "}")
	return before + sign(buyer) + after
}

// Golden reads the traces of a directory.
func Golden(dir string) ([]*Trace, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("edgetest: no traces in %s: %w", dir, err)
	}
	traces := make([]*Trace, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t := &Trace{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(t); err != nil {
			return nil, fmt.Errorf("edgetest: %s: %w", file, err)
		}
		traces[i] = t
	}
	return traces, nil
}

// Check compares the decisions of an edge with the trace and returns the first difference.
func (t *Trace) Check(got []Decision) error {
	if len(got) != len(t.Steps) {
		return fmt.Errorf("%s: %d decisions on %d requests", t.Name, len(got), len(t.Steps))
	}
	for i, s := range t.Steps {
		if got[i] != s.Want {
			return fmt.Errorf("%s: request %d of %d, %+v:\n  got  %+v\n  want %+v\nunder\n%s", t.Name, i+1,
				len(got), s.Request, got[i], s.Want, t.Policy())
		}
	}
	return nil
}
