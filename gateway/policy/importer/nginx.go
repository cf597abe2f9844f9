package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"sluice/gateway/policy"
)

// Notes about settings that no rule replaces.
const (
	perClient  = "--per-client of the edge limits the concurrent requests of a client"
	blocksNone = "a policy blocks no clients"
)

// blockStatuses are the responses of an if to blocked clients. 444 closes the connection.
var blockStatuses = []string{"403", "429", "444"}

type nginxConfig struct {
	*converter
	zones     map[string]*zone
	byMap     map[string]*crossplane.Directive // map and geo blocks, by the variable that they set
	servers   int
	locations []string // paths, sorted; without those of regular expressions
	hasRegexp bool     // there are locations with a regular expression

	hasRealIPHeader bool // a real_ip_header is set somewhere, or its absence is noted
	hasStatus       bool // the same for limit_req_status
}

// level is a block and the settings that it inherits.
type level struct {
	where   string // "location /login", or ""
	path    string // pattern of a policy
	skip    bool   // requests of this block cannot be described by a pattern
	shadow  bool   // limit_req_dry_run
	limited int    // line of a limit_req in this block or in one around it; 0 for none
	server  bool   // in a server block
}

func (c *converter) nginx(path string) error {
	payload, err := parseNginx(path, func(included string) {
		c.note(path, 0, "not converted: %s does not exist", included)
	})
	if err != nil {
		return fmt.Errorf(
			"%s: not a configuration of nginx: %w (files of an Ingress or of APISIX end in .yaml, .yml or .json)", path, err)
	}
	n := &nginxConfig{converter: c, zones: map[string]*zone{}, byMap: map[string]*crossplane.Directive{}}
	for _, config := range payload.Config { // one, with its includes
		n.collect(config.Parsed)
		n.walk(config.Parsed, level{})
	}
	return nil
}

func (n *nginxConfig) noteAt(d *crossplane.Directive, format string, args ...any) {
	n.note(d.File, d.Line, format, args...)
}

// collect reads what may be defined after its use: maps first, then zones.
func (n *nginxConfig) collect(all crossplane.Directives) {
	var zones crossplane.Directives
	var visit func(crossplane.Directives)
	visit = func(all crossplane.Directives) {
		for _, d := range all {
			switch d.Directive {
			case "map", "geo":
				if len(d.Args) > 0 {
					n.byMap[d.Args[len(d.Args)-1]] = d
				}
			case "server":
				if d.IsBlock() { // not that of an upstream
					n.servers++
				}
			case "location":
				if kind, path := location(d); strings.HasPrefix(kind, "~") {
					n.hasRegexp = true
				} else {
					n.locations = append(n.locations, path)
				}
			case "real_ip_header":
				n.hasRealIPHeader = true
			case "limit_req_status":
				n.hasStatus = true
			case "limit_req_zone":
				zones = append(zones, d)
			}
			visit(d.Block)
		}
	}
	visit(all)
	slices.Sort(n.locations)
	for _, d := range zones {
		n.zone(d)
	}
}

func lastOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[len(args)-1]
}

func (n *nginxConfig) walk(all crossplane.Directives, around level) {
	here := around
	isInternal := false // clients cannot request an internal location
	for _, d := range all {
		switch d.Directive {
		case "limit_req_dry_run":
			here.shadow = lastOf(d.Args) == "on"
		case "internal":
			isInternal = true
		}
	}
	for _, d := range all {
		switch d.Directive {
		case "limit_req":
			n.limit(d, here, around.limited)
			here.limited = d.Line
		case "limit_req_status":
			if status := lastOf(d.Args); status != "429" {
				n.noteAt(d, "limit_req_status %s: the edge answers 429", status)
			}
		case "limit_conn":
			n.noteAt(d, "not converted: %s: %s", sourceOf(d), perClient)
		case "deny":
			if !isInternal {
				n.noteAt(d, "not converted: %s: %s", sourceOf(d), blocksNone)
			}
		case "if":
			for _, r := range d.Block {
				if r.Directive == "return" && len(r.Args) > 0 && slices.Contains(blockStatuses, r.Args[0]) {
					n.noteAt(d, "not converted: %s { %s }: %s", sourceOf(d), sourceOf(r), blocksNone)
				}
			}
		case "limit_rate", "limit_rate_after":
			n.noteAt(d, "not converted: %s", sourceOf(d))
		case "set_real_ip_from":
			n.trust(d)
			if !n.hasRealIPHeader {
				n.noteAt(d, "no real_ip_header: nginx reads X-Real-IP, the edge X-Forwarded-For, or the PROXY protocol")
				n.hasRealIPHeader = true
			}
		case "real_ip_header":
			if header := lastOf(d.Args); !strings.EqualFold(header, "X-Forwarded-For") {
				n.noteAt(d, "real_ip_header %s: the edge reads X-Forwarded-For, or the PROXY protocol", header)
			}
		}
	}
	for _, d := range all {
		if len(d.Block) > 0 && d.Directive != "map" && d.Directive != "geo" {
			n.walk(d.Block, n.enter(d, here))
		}
	}
}

func (n *nginxConfig) enter(d *crossplane.Directive, around level) level {
	inner := around
	switch d.Directive {
	case "server":
		inner.server = true
	case "location":
		inner.where = sourceOf(d)
		kind, path := location(d)
		inner.skip = strings.HasPrefix(kind, "~") || strings.HasPrefix(path, "@") || strings.Contains(path, "*")
		if !inner.skip && has(d.Block, "limit_req") {
			inner.path = n.pattern(d.File, d.Line, path, kind == "=")
			if kind != "=" && (n.hasRegexp && kind != "^~" || n.below(path)) {
				n.noteAt(d, "%s: the rule also counts requests of other locations that it matches", inner.where)
			}
		}
	case "if", "limit_except":
		inner.where, inner.skip = sourceOf(d), true
	}
	return inner
}

var locationForm = regexp.MustCompile(`(?s)^(=|\^~|~\*|~)? ?(.*)$`)

// location returns the modifier of a location, or "", and its path or regular expression.
func location(d *crossplane.Directive) (kind, path string) {
	m := locationForm.FindStringSubmatch(strings.Join(d.Args, " "))
	return m[1], m[2]
}

// below reports whether there is a location for a part of the requests with a prefix.
func (n *nginxConfig) below(prefix string) bool {
	i, _ := slices.BinarySearch(n.locations, prefix+"\x00") // the first one behind those with this path
	return i < len(n.locations) && strings.HasPrefix(n.locations[i], prefix)
}

// has reports whether a block itself has a directive.
func has(block crossplane.Directives, directive string) bool {
	return slices.ContainsFunc(block, func(d *crossplane.Directive) bool { return d.Directive == directive })
}

// limit converts limit_req zone=NAME [burst=N] [nodelay|delay=N]. replaced is the line of the limit around the block
// that it replaces, or 0.
func (n *nginxConfig) limit(d *crossplane.Directive, at level, replaced int) {
	n.found = true
	source := sourceOf(d)
	if at.where != "" {
		source += " in " + at.where
	}
	if at.skip {
		n.noteAt(d, "not converted: %s: a rule matches a method and a path, in which * is one segment", source)
		return
	}
	r := policy.Rule{Key: policy.ByIP, Mode: policy.Enforce, OnError: policy.Deny, Match: policy.Match{Path: at.path}}
	if at.shadow {
		r.Mode = policy.Shadow
	}
	delay := 0
	nodelay := false
	for _, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		number, err := strconv.ParseUint(value, 10, 31)
		switch {
		case name == "zone":
			r.Name = value
		case name == "nodelay":
			nodelay = true
		case name == "burst" && err == nil:
			r.Burst = int(number)
		case name == "delay" && err == nil:
			delay = int(number)
		default:
			n.noteAt(d, "not converted: %s: %q is not a parameter of limit_req", source, arg)
			return
		}
	}
	z := n.zones[r.Name]
	if z == nil {
		n.noteAt(d, "not converted: %s: its zone was not converted or is missing", source)
		return
	}
	if !n.hasStatus {
		n.noteAt(d, "no limit_req_status: nginx answers 503, the edge 429")
		n.hasStatus = true
	}
	r.Key, r.Rate, r.Delay = z.key, z.rate, r.Burst > 0 && !nodelay && delay < r.Burst
	if r.Delay && delay > 0 {
		n.noteAt(d, "%s: the rule delays every request above the rate, not only those after the first %d", source, delay)
	}
	methods := z.methods
	if len(methods) == 0 {
		methods = []string{""}
	}
	if z.used += len(methods); z.used > 1 {
		n.noteAt(d, "%s: nginx counts all places of a zone together, a policy counts each rule separately", source)
	}
	if replaced > 0 {
		n.noteAt(d, "%s replaces the limit of line %d in nginx; every rule that matches applies here", source, replaced)
	}
	if n.servers > 1 && at.server {
		n.noteAt(d, "%s: a rule applies to every host", source)
	}
	for _, r.Match.Method = range methods {
		n.add(d.File, d.Line, source, r)
	}
}

func (n *nginxConfig) trust(d *crossplane.Directive) {
	network, ok := policy.ParseNetwork(lastOf(d.Args))
	if !ok {
		n.noteAt(d, "not converted: %s: want an address or a network", sourceOf(d))
		return
	}
	if !slices.Contains(n.TrustedProxies, network) {
		n.TrustedProxies = append(n.TrustedProxies, network)
	}
}

// sourceOf returns the text of a directive, without its block.
func sourceOf(d *crossplane.Directive) string {
	return strings.Join(append([]string{d.Directive}, d.Args...), " ")
}
