package importer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice/gateway/policy"
)

// yaml converts Ingresses and APISIX's routes, services, consumers and global rules. JSON is YAML.
func (c *converter) yaml(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.EqualFold(filepath.Ext(path), ".json") {
		text = jsonEscape.ReplaceAllFunc(text, plainSlash)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, root := range document.Content {
			c.noteAliases(path, root)
			c.visit(path, root, "", 0)
		}
	}
}

var jsonEscape = regexp.MustCompile(`(?s)\\.`)

// plainSlash replaces the escape of a slash, which encoders of JSON write and the YAML parser rejects.
func plainSlash(escape []byte) []byte {
	if escape[1] == '/' {
		return escape[1:]
	}
	return escape
}

// maxDepth bounds the nesting of a document, and of the blocks of a file of nginx.
const maxDepth = 100

// noteAliases notes the aliases below a node. They are not followed: a short document can stand for endless text.
func (c *converter) noteAliases(file string, node *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		c.note(file, node.Line, "not converted: the alias *%s: write its content in its place", node.Value)
	}
	for _, child := range node.Content {
		c.noteAliases(file, child)
	}
}

// visit converts the objects in a node. kind is the key of the list that holds them, such as "routes", or that of the
// Admin API, such as "/apisix/routes/1".
func (c *converter) visit(file string, node *yaml.Node, kind string, depth int) {
	if depth > maxDepth {
		return
	}
	switch {
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			c.visit(file, item, kind, depth+1)
		}
	case node.Kind != yaml.MappingNode:
	case scalar(node, "kind") == "Ingress":
		c.ingress(file, node)
	case child(node, "plugins") != nil:
		c.apisix(file, node, kind)
	default:
		for i := 0; i+1 < len(node.Content); i += 2 {
			kind := node.Content[i].Value
			if kind == "value" {
				kind = scalar(node, "key")
			}
			c.visit(file, node.Content[i+1], kind, depth+1)
		}
	}
}

// child returns the value of a key, or nil. node may be nil.
func child(node *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if node == nil || node.Kind != yaml.MappingNode {
			return nil
		}
		var value *yaml.Node
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				value = node.Content[i+1]
			}
		}
		node = value
	}
	return node
}

func scalar(node *yaml.Node, keys ...string) string {
	if value := child(node, keys...); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}
	return ""
}

func isTrue(node *yaml.Node, keys ...string) bool {
	return strings.EqualFold(scalar(node, keys...), "true")
}

func items(node *yaml.Node, keys ...string) []*yaml.Node {
	if list := child(node, keys...); list != nil && list.Kind == yaml.SequenceNode {
		return list.Content
	}
	return nil
}

const annotation = "nginx.ingress.kubernetes.io/"

// ingressBurst is the default of limit-burst-multiplier.
const ingressBurst = 5

type ingressPath struct {
	path  string
	exact bool
}

// ingress converts the annotations limit-rps and limit-rpm of an Ingress.
func (c *converter) ingress(file string, node *yaml.Node) {
	name := scalar(node, "metadata", "name")
	annotations := child(node, "metadata", "annotations")
	multiplier := ingressBurst
	if text := scalar(annotations, annotation+"limit-burst-multiplier"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > policy.MaxBurst {
			c.note(file, node.Line, "limit-burst-multiplier %q is not a number; the default %d is used", text, ingressBurst)
		} else {
			multiplier = n
		}
	}
	limits := map[string]time.Duration{"limit-rps": time.Second, "limit-rpm": time.Minute}
	var found []policy.Rule
	for i := 0; annotations != nil && i+1 < len(annotations.Content); i += 2 {
		key, ok := strings.CutPrefix(annotations.Content[i].Value, annotation)
		value, line := annotations.Content[i+1].Value, annotations.Content[i].Line
		per := limits[key]
		switch {
		case !ok:
		case per > 0:
			c.found = true
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > policy.MaxRate {
				c.note(file, line, "not converted: %s %q: want a number of requests", key, value)
				continue
			}
			found = append(found, policy.Rule{
				Name: name + strings.TrimPrefix(key, "limit"), Key: policy.ByIP, Mode: policy.Enforce, OnError: policy.Deny,
				Rate: policy.Rate{Requests: float64(n), Per: per}, Burst: n * multiplier,
			})
		case key == "limit-whitelist", key == "limit-allowlist":
			c.note(file, line, "%s %s: a policy has no exceptions, so these clients are limited too", key, value)
		case key == "limit-connections":
			c.note(file, line, "not converted: %s %s: %s", key, value, perClient)
		case key == "denylist-source-range":
			c.note(file, line, "not converted: %s %s: %s", key, value, blocksNone)
		case strings.HasSuffix(key, "-snippet") && strings.Contains(value, "limit_req"):
			c.found = true
			c.note(file, line, "not converted: %s has limit_req: convert the nginx.conf of the controller", key)
		case strings.HasPrefix(key, "limit-") && key != "limit-burst-multiplier", strings.HasPrefix(key, "global-rate-limit"):
			c.note(file, line, "not converted: %s %s", key, value)
		}
	}
	if len(found) > 0 {
		c.addToPaths(file, node, found)
	}
}

func (c *converter) addToPaths(file string, node *yaml.Node, rules []policy.Rule) {
	name := scalar(node, "metadata", "name")
	c.note(file, 0, "limit-req-status-code of the ConfigMap is 503, by default; the edge answers 429")
	paths, hosts := ingressPaths(node)
	if hosts {
		c.note(file, node.Line, "Ingress %s is limited to hosts; a rule applies to every host", name)
	}
	if len(paths) > 1 {
		c.note(file, node.Line, "Ingress %s counts all of its paths together; a policy counts each rule separately", name)
	}
	for _, r := range rules {
		source := fmt.Sprintf("Ingress %s, limit of %s", name, r.Name)
		for _, p := range paths {
			if strings.ContainsAny(p.path, `*()[]{}+?|^$\`) {
				c.note(file, node.Line, "not converted: %s: %s is a regular expression", source, p.path)
				continue
			}
			r.Match.Path = c.pattern(file, node.Line, p.path, p.exact)
			c.add(file, node.Line, source, r)
		}
	}
}

// ingressPaths returns the distinct paths of an Ingress, or "/" if it has none, and whether it names hosts.
func ingressPaths(node *yaml.Node) (paths []ingressPath, hosts bool) {
	every := ingressPath{path: "/"}
	for _, rule := range items(node, "spec", "rules") {
		hosts = hosts || scalar(rule, "host") != ""
		for _, p := range items(rule, "http", "paths") {
			one := ingressPath{cmp.Or(scalar(p, "path"), "/"), scalar(p, "pathType") == "Exact"}
			if !slices.Contains(paths, one) {
				paths = append(paths, one)
			}
		}
	}
	if len(paths) == 0 || slices.Contains(paths, every) {
		paths = []ingressPath{every}
	}
	return paths, hosts
}

// apisix converts the plugin limit-req of an object: a route, a service, a consumer or a global rule. For kind see
// visit.
func (c *converter) apisix(file string, node *yaml.Node, kind string) {
	plugins := child(node, "plugins")
	for _, other := range []string{"limit-count", "limit-conn", "ip-restriction"} {
		if child(plugins, other) != nil {
			c.note(file, child(plugins, other).Line, "not converted: the plugin %s", other)
		}
	}
	for _, plugin := range items(node, "plugins") { // of a custom resource
		if scalar(plugin, "name") == "limit-req" {
			c.found = true
			c.note(file, plugin.Line, "not converted: limit-req of a list of plugins: write it as a route of APISIX")
		}
	}
	limit := child(plugins, "limit-req")
	if limit == nil {
		return
	}
	c.found = true
	line := limit.Line
	name := cmp.Or(scalar(node, "name"), scalar(node, "id"), scalar(node, "username"), "limit-req")
	source := "limit-req of " + name
	if scalar(node, "status") == "0" || isTrue(limit, "_meta", "disable") || isTrue(limit, "disable") {
		c.note(file, line, "not converted: %s is disabled", source)
		return
	}
	r, ok := c.limitReq(file, limit, source)
	if !ok {
		return
	}
	r.Name = name
	uris, methods := texts(node, "uri", "uris"), texts(node, "", "methods")
	if len(uris) == 0 && !strings.Contains(kind, "global_rules") { // a service, a consumer or a group of them
		c.note(file, line, "%s applies to some routes only; the rule applies to every request", source)
	}
	conditions := []string{"host", "hosts", "vars", "remote_addr", "remote_addrs", "filter_func"}
	if slices.ContainsFunc(conditions, func(key string) bool { return child(node, key) != nil }) {
		c.note(file, line, "%s: the route has further conditions; a rule matches a method and a path only", source)
	}
	if len(uris) > 1 || len(methods) > 1 {
		c.note(file, line, "%s counts all URIs and methods together; a policy counts each rule separately", source)
	}
	if len(uris) == 0 {
		uris = []string{"/*"}
	}
	if len(methods) == 0 {
		methods = []string{""}
	}
	for _, uri := range uris {
		below, prefix := strings.CutSuffix(uri, "*")
		r.Match.Path = c.pattern(file, line, parameters(below), !prefix)
		for _, method := range methods {
			r.Match.Method = method
			c.add(file, line, source, r)
		}
	}
}

func (c *converter) limitReq(file string, limit *yaml.Node, source string) (policy.Rule, bool) {
	r := policy.Rule{Mode: policy.Enforce, OnError: policy.Deny, Delay: !isTrue(limit, "nodelay")}
	rate, err := strconv.ParseFloat(scalar(limit, "rate"), 64)
	burst, burstErr := strconv.ParseFloat(cmp.Or(scalar(limit, "burst"), "0"), 64)
	if err != nil || burstErr != nil || !(rate > 0) || !(burst >= 0) {
		c.note(file, limit.Line, "not converted: %s: want a rate above 0 and a burst of at least 0", source)
		return r, false
	}
	r.Rate, r.Burst = policy.Rate{Requests: rate, Per: time.Second}, int(min(burst, policy.MaxBurst))
	if burst != math.Trunc(burst) || burst > policy.MaxBurst {
		c.note(file, limit.Line, "%s: burst %v is rounded down to %d", source, burst, r.Burst)
	}
	r.Delay = r.Delay && r.Burst > 0
	switch key := cmp.Or(scalar(limit, "key"), "remote_addr"); key {
	case "remote_addr", "$remote_addr":
		r.Key = policy.ByIP
	case "http_x_forwarded_for", "http_x_real_ip":
		r.Key = policy.ByIP
		c.note(file, limit.Line, "%s: %s is a header that a client can set; the rule counts by the address: add your "+
			"proxies to trusted_proxies", source, key)
	case "consumer_name":
		r.Key = policy.ByToken
		c.note(file, limit.Line, "%s: the rule counts by the verified subject of the token, and requests without a valid "+
			"token get 401", source)
	default:
		c.note(file, limit.Line, "not converted: %s: the key %s; a rule counts by client address or by token", source, key)
		return r, false
	}
	if isTrue(limit, "allow_degradation") {
		r.OnError = policy.Allow
	}
	if code := scalar(limit, "rejected_code"); code != "429" {
		c.note(file, limit.Line, "%s: rejected_code is %s; the edge answers 429", source, cmp.Or(code, "503, by default"))
	}
	if shared := scalar(limit, "policy"); strings.HasPrefix(shared, "redis") {
		c.note(file, limit.Line, "%s: policy %s counts for all gateways together; each edge counts its own requests",
			source, shared)
	}
	return r, true
}

// texts returns the text of the key one, and the texts of the list many.
func texts(node *yaml.Node, one, many string) (all []string) {
	if text := scalar(node, one); text != "" {
		all = append(all, text)
	}
	for _, item := range items(node, many) {
		all = append(all, item.Value)
	}
	return all
}

// parameters replaces the segments :NAME of a URI by the wildcard of a policy.
func parameters(uri string) string {
	segments := strings.Split(uri, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, ":") {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}
