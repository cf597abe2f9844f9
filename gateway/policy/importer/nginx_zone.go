package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"sluice/gateway/policy"
)

type zone struct {
	key     policy.Key
	methods []string // of the requests that count; empty: all
	rate    policy.Rate
	used    int // rules that use it
}

// zone reads limit_req_zone KEY zone=NAME:SIZE rate=RATE.
func (n *nginxConfig) zone(d *crossplane.Directive) {
	n.found = true
	text := sourceOf(d)
	if len(d.Args) < 3 {
		n.noteAt(d, "not converted: %s: want a key, zone= and rate=", text)
		return
	}
	var z zone
	name, rate := "", ""
	for _, arg := range d.Args[1:] {
		if value, ok := strings.CutPrefix(arg, "zone="); ok {
			name, _, _ = strings.Cut(value, ":")
		} else if value, ok := strings.CutPrefix(arg, "rate="); ok {
			rate = value
		}
	}
	var ok bool
	if z.rate, ok = nginxRate(rate); !ok || name == "" {
		n.noteAt(d, "not converted: %s: want zone=NAME:SIZE and a rate such as 10r/s or 90r/m", text)
		return
	}
	if z.key, z.methods, ok = n.key(d); ok {
		n.zones[name] = &z
	}
}

func nginxRate(text string) (policy.Rate, bool) {
	number, unit, _ := strings.Cut(text, "r/")
	per, ok := map[string]time.Duration{"s": time.Second, "m": time.Minute}[unit]
	requests, err := strconv.ParseUint(number, 10, 31)
	return policy.Rate{Requests: float64(requests), Per: per}, ok && err == nil && requests > 0
}

// key returns the key of a policy for the key of a zone, and the methods of the requests that count, if not all do. It
// notes what differs.
func (n *nginxConfig) key(d *crossplane.Directive) (key policy.Key, methods []string, ok bool) {
	expression := d.Args[0]
	switch expression {
	case "$http_x_forwarded_for", "$http_x_real_ip", "$proxy_add_x_forwarded_for", "$http_cf_connecting_ip":
		n.noteAt(d, "%s is a header that a client can set; the rule counts by the address: add your proxies to "+
			"trusted_proxies", expression)
		return policy.ByIP, nil, true
	case "$http_authorization", "$jwt_claim_sub":
		n.noteAt(d, "%s: the rule counts by the verified subject of the token, and requests without a valid token "+
			"get 401", expression)
		return policy.ByToken, nil, true
	}
	if isAddress(expression) {
		return policy.ByIP, nil, true
	}
	source := n.byMap[expression]
	if source != nil && slices.ContainsFunc(source.Block, setsAddress) || isAddress(n.usual(expression, maxMaps)) {
		methods, ok = n.keyOfMap(d, source)
		return policy.ByIP, methods, ok
	}
	if !strings.Contains(expression, "$") || expression == "$server_name" || expression == "$host" {
		n.noteAt(d, "not converted: the key %s is one bucket for all clients; a rule counts by client address or by "+
			"token", expression)
	} else {
		n.noteAt(d, "not converted: the key %s; a rule counts by client address or by token", expression)
	}
	return "", nil, false
}

// keyOfMap is key for a variable that a map or a geo block sets to the address of some clients. An empty value counts
// no request.
func (n *nginxConfig) keyOfMap(d, source *crossplane.Directive) (methods []string, ok bool) {
	others := false
	for _, entry := range source.Block {
		if setsAddress(entry) && source.Args[0] == "$request_method" {
			methods = append(methods, entry.Directive)
		} else if lastOf(entry.Args) != "" {
			others = true
		}
	}
	usual := n.usual(d.Args[0], maxMaps)
	set := fmt.Sprintf("%s is set by the %s on line %d", d.Args[0], source.Directive, source.Line)
	switch {
	case isAddress(usual):
		n.noteAt(d, "%s: a policy has no exceptions, so clients that it exempts are limited too", set)
		return nil, true
	case len(methods) > 0:
		if others {
			n.noteAt(d, "%s, also for other methods than %s: the rule does not count those", set, strings.Join(methods, " and "))
		}
		return methods, true
	case strings.HasPrefix(usual, "$"):
		n.noteAt(d, "%s: the rule counts all clients by their address", set)
		return nil, true
	}
	n.noteAt(d, "not converted: the key %s: the %s on line %d selects the requests that count; a rule matches a method "+
		"and a path", d.Args[0], source.Directive, source.Line)
	return nil, false
}

// setsAddress reports whether an entry of a map sets a variable to the address of the client.
func setsAddress(entry *crossplane.Directive) bool { return isAddress(lastOf(entry.Args)) }

// maxMaps bounds the maps that are read for one variable, which may form a cycle.
const maxMaps = 10

// usual returns the value of a variable for the usual request: a map or geo block sets its default value, or the value
// for the usual value of its own variable.
func (n *nginxConfig) usual(variable string, most int) string {
	source := n.byMap[variable]
	if source == nil || most == 0 {
		return variable
	}
	input := "default"
	if source.Directive == "map" && n.byMap[source.Args[0]] != nil {
		input = n.usual(source.Args[0], most-1)
	}
	value := ""
	for _, entry := range source.Block {
		if entry.Directive == input {
			return n.usual(lastOf(entry.Args), most-1)
		}
		if entry.Directive == "default" {
			value = lastOf(entry.Args)
		}
	}
	return n.usual(value, most-1)
}

func isAddress(variable string) bool {
	switch variable {
	case "$binary_remote_addr", "$remote_addr", "${binary_remote_addr}", "${remote_addr}":
		return true
	}
	return false
}
