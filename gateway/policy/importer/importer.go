// Package importer converts the rate limits of nginx (limit_req), of ingress-nginx and of APISIX (limit-req) to an edge
// policy. What has no equivalent is listed in notes.
package importer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sluice/gateway/policy"
)

const maxSize = 16 << 20

// Result is a converted policy.
type Result struct {
	Rules          []Rule
	TrustedProxies []netip.Prefix
	Notes          policy.Findings // what has no equivalent, or another meaning; by file and line
}

// Rule is a rule and its source.
type Rule struct {
	policy.Rule
	Source string // "nginx.conf:12: limit_req zone=one burst=5"
}

// Import converts the file at path: YAML or JSON by its extension (.yaml, .yml, .json), else nginx, with the files that
// it includes. The rules and the proxies are valid in a policy, except that there may be too many.
func Import(path string) (*Result, error) {
	err := checkFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s does not exist: name an nginx configuration, or a YAML or JSON file", path)
	}
	if err != nil {
		return nil, err
	}
	c := &converter{names: map[string]bool{}, next: map[string]int{}, noted: map[policy.Finding]bool{}}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		err = c.yaml(path)
	default:
		err = c.nginx(path)
	}
	if err != nil {
		return nil, err
	}
	if !c.found {
		return nil, fmt.Errorf("%s: no rate limit found: want nginx with limit_req_zone, an Ingress with "+
			"nginx.ingress.kubernetes.io/limit-rps or limit-rpm, or APISIX with the plugin limit-req", path)
	}
	if slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Key == policy.ByIP }) {
		c.note(path, 0, "IPv6 clients are counted by their /64 network (see ipv6_prefix), not by address")
	}
	slices.SortStableFunc(c.Notes, func(a, b policy.Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line)
	})
	return &c.Result, nil
}

func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file", path)
	case info.Size() > maxSize:
		return fmt.Errorf("%s: more than %d MiB", path, maxSize>>20)
	}
	return nil
}

type converter struct {
	Result
	names map[string]bool
	next  map[string]int // number to try next for a name that several rules resemble
	noted map[policy.Finding]bool
	found bool // a limit was found, even if it has no equivalent
}

func (c *converter) note(file string, line int, format string, args ...any) {
	n := policy.Finding{File: file, Line: line, Message: fmt.Sprintf(format, args...)}
	if !c.noted[n] {
		c.noted[n] = true
		c.Notes = append(c.Notes, n)
	}
}

// add adds a rule with a name that resembles r.Name, or a note if the policy does not accept the rule.
func (c *converter) add(file string, line int, source string, r policy.Rule) {
	c.found = true
	r.Name = c.uniqueName(r.Name)
	if r.Key == policy.ByIP {
		r.IPv6Prefix = policy.DefaultIPv6Prefix
	}
	var text bytes.Buffer
	writeRule(&text, r)
	if _, err := policy.Parse(file, []byte("return { rules = { "+text.String()+" } }")); err != nil {
		message := err.Error()
		if findings, ok := errors.AsType[policy.Findings](err); ok {
			message = findings[0].Message
		}
		c.note(file, line, "not converted: %s: %s", source, message)
		return
	}
	c.names[r.Name] = true
	c.Rules = append(c.Rules, Rule{r, fmt.Sprintf("%s:%d: %s", file, line, source)})
}

const maxName = 32

func (c *converter) uniqueName(like string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, like)
	if name = strings.TrimLeft(name, "-_"); name == "" || name == policy.ConcurrencyRule {
		name = "limit"
	}
	base := name[:min(len(name), maxName)]
	unique := base
	for c.names[unique] {
		c.next[base] = max(2, c.next[base]+1)
		suffix := fmt.Sprint("-", c.next[base])
		unique = base[:min(len(base), maxName-len(suffix))] + suffix
	}
	return unique
}

// pattern returns the pattern of a policy that comes closest to a path, for an exact match or for a prefix.
func (c *converter) pattern(file string, line int, path string, exact bool) string {
	trimmed := strings.TrimSuffix(path, "/")
	switch {
	case exact && trimmed == "":
		return "/"
	case exact:
		return trimmed
	case trimmed == "":
		return "" // every path
	}
	covered := trimmed
	if trimmed != path {
		covered += "/*"
	}
	c.note(file, line, "%s is a prefix; a rule's path has a fixed number of segments: the rule covers %s and needs a "+
		"copy for each further depth", path, covered)
	return covered
}
