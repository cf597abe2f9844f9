package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/docs"
	"sluice/internal/openapi"
)

// history are documents about former versions, which name what has been removed since.
var history = regexp.MustCompile(`^(CHANGELOG\.md|docs/adr/.*|docs/upgrade-.*)$`)

var (
	metric     = regexp.MustCompile(`(?:^|[^$.\w])(sluice_[a-z][a-z_]*[a-z])\b`) // $sluice_client is a variable of nginx
	apiPath    = regexp.MustCompile(`(?:/admin)?/v1/[a-z][A-Za-z0-9_/{}$.-]*`)
	pathName   = regexp.MustCompile(`\{[^}]*\}`)
	metricTail = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// docs/observability.md has every metric, which another test compares with the program. Other documents name no others.
func TestDocumentedMetricsAreInObservability(t *testing.T) {
	observability, err := os.ReadFile(filepath.Join(root, "docs/observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"sluice_buckets": true, "sluice_leases": true} // shared memory of nginx
	for _, found := range metric.FindAllStringSubmatch(string(observability), -1) {
		known[found[1]] = true
	}
	named := eachInCode(t, metric, func(where, name string) {
		if !known[name] && !known[metricTail.ReplaceAllString(name, "")] {
			t.Errorf("%s: docs/observability.md has no metric %s", where, name)
		}
	})
	if named < 100 {
		t.Errorf("found %d names of metrics, want at least 100", named)
	}
}

func TestDocumentedPathsOfTheAPIExist(t *testing.T) {
	doc, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	var known []*regexp.Regexp
	for op := range doc.Operations() {
		known = append(known, regexp.MustCompile("^"+pathName.ReplaceAllString(op.Path, "[^/]+")+"$"))
	}
	exists := func(path string) bool {
		for _, k := range known {
			if k.MatchString(path) {
				return true
			}
		}
		return false
	}
	named := eachInCode(t, apiPath, func(where, path string) {
		if !strings.HasSuffix(path, "/") && !exists(strings.TrimRight(path, ".")) {
			t.Errorf("%s: docs/openapi.yaml has no path %s", where, path)
		}
	})
	if named < 50 {
		t.Errorf("found %d paths, want at least 50", named)
	}
}

// eachInCode calls check with each match of a pattern in the code of the documents, except those about the past, and
// returns the number of matches. A match is the last group of the pattern.
func eachInCode(t *testing.T, pattern *regexp.Regexp, check func(where, match string)) (found int) {
	t.Helper()
	for _, d := range readAll(t) {
		if history.MatchString(d.Path) {
			continue
		}
		for _, code := range append(d.Code, d.Spans...) {
			for _, groups := range pattern.FindAllStringSubmatch(code.Value, -1) {
				found++
				check(fmt.Sprintf("%s:%d", d.Path, code.Line), groups[len(groups)-1])
			}
		}
	}
	return found
}
