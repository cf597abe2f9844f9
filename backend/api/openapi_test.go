package api

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"sluice/internal/problem"
)

// document is docs/openapi.yaml.
type document struct {
	root    map[string]any
	schemas *jsonschema.Compiler
	mu      sync.Mutex // of schemas
}

const documentURL = "file:///openapi.json"

var documentation = sync.OnceValues(func() (*document, error) {
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	var parsed any
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(parsed)
	if err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	if err != nil {
		return nil, err
	}
	schemas := jsonschema.NewCompiler()
	schemas.DefaultDraft(jsonschema.Draft2020)
	schemas.AssertFormat()
	return &document{root: root.(map[string]any), schemas: schemas}, schemas.AddResource(documentURL, root)
})

func openAPI(t testing.TB) *document {
	t.Helper()
	d, err := documentation()
	if err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	return d
}

// at follows names from the root, through references; where is the JSON pointer of what it found, nil if there is nothing.
func (d *document) at(names ...string) (found any, where string) {
	found = d.root
	for _, name := range names {
		m, ok := found.(map[string]any)
		if !ok {
			return nil, ""
		}
		if found, ok = m[name]; !ok {
			return nil, ""
		}
		where += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if m, ok := found.(map[string]any); ok {
			if ref, ok := m["$ref"].(string); ok {
				found, where = d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
		}
	}
	return found, where
}

// valid checks a JSON text against the schema at the pointer.
func (d *document) valid(pointer, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema, err := d.schemas.Compile(documentURL + "#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer))
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// everywhere are the statuses that any route may answer without listing them, always as a problem.
var everywhere = []int{400, 404, 405, 408, 413, 431, 500}

// documented checks an answer of a route against its documentation: the status, the media type, the body, and headers that must be there.
func (a *App) documented(t testing.TB, method, path string, got answer) {
	t.Helper()
	d := openAPI(t)
	path, _, _ = strings.Cut(path, "?")
	if method == "HEAD" {
		return
	}
	media, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	route := a.routeOf(method, path)
	status := strconv.Itoa(got.status)
	response, _ := d.at("paths", route, strings.ToLower(method), "responses", status)
	if response == nil {
		if !slices.Contains(everywhere, got.status) {
			t.Errorf("docs/openapi.yaml has no %s for %s %s", status, method, route)
		}
		if err := d.valid("/components/schemas/Problem", got.body); err != nil {
			t.Errorf("%s %s answers %s with no problem: %v", method, path, status, err)
		}
		return
	}
	if has, _ := d.at("paths", route, strings.ToLower(method), "responses", status, "content"); has == nil && got.body == "" {
		return
	}
	schema, where := d.at("paths", route, strings.ToLower(method), "responses", status, "content", media, "schema")
	switch {
	case schema == nil:
		t.Errorf("docs/openapi.yaml has no %s in the %s of %s %s", media, status, method, route)
	case strings.HasSuffix(media, "json"):
		if err := d.valid(where, got.body); err != nil {
			t.Errorf("%s %s: the %s is not as documented: %v\n%s", method, path, status, err, got.body)
		}
	}
	headers, _ := d.at("paths", route, strings.ToLower(method), "responses", status, "headers")
	listed, _ := headers.(map[string]any)
	for name, h := range listed {
		if required, _ := h.(map[string]any)["required"].(bool); required && got.header.Get(name) == "" {
			t.Errorf("%s %s: the %s lacks the header %s", method, path, status, name)
		}
	}
	for _, name := range []string{"Location", "Retry-After", "WWW-Authenticate", "RateLimit", "RateLimit-Policy", "Idempotency-Replayed"} {
		if _, ok := listed[name]; !ok && got.header.Get(name) != "" {
			t.Errorf("docs/openapi.yaml does not tell of %s in the %s of %s %s", name, status, method, route)
		}
	}
}

// routeOf is the documentation's path for a route of this application, "" if it is none.
func (a *App) routeOf(method, path string) string {
	parts := strings.Split(path, "/")
	for _, r := range a.routes {
		pattern := strings.Split(r.path, "/")
		if r.method == method && slices.EqualFunc(pattern, parts, func(p, part string) bool { return p == part || strings.HasPrefix(p, ":") && part != "" }) {
			return documentedPath(r.path)
		}
	}
	return ""
}

func TestDocumentationListsEveryRouteAndNoOther(t *testing.T) {
	d := openAPI(t)
	public, err := NewPublic(newWorld().config(t))
	if err != nil {
		t.Fatal(err)
	}
	operator, err := NewOperator(newDeskWorld().config())
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, r := range append(public.routes, operator.routes...) {
		there[strings.ToLower(r.method)+" "+documentedPath(r.path)] = true
	}
	listed := map[string]bool{}
	for path, item := range d.root["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				listed[method+" "+path] = true
			}
		}
	}
	for r := range there {
		if !listed[r] {
			t.Errorf("docs/openapi.yaml lacks %s", r)
		}
	}
	for r := range listed {
		if !there[r] {
			t.Errorf("docs/openapi.yaml lists %s, which nobody answers", r)
		}
	}
}

func TestDocumentationIsWhole(t *testing.T) {
	d := openAPI(t)
	if d.root["openapi"] != "3.1.0" {
		t.Errorf("openapi: %v", d.root["openapi"])
	}
	ids := map[string]bool{}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				if found, _ := d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...); found == nil {
					t.Errorf("%s: %s leads nowhere", where, ref)
				}
			}
			if id, ok := v["operationId"].(string); ok {
				if ids[id] {
					t.Errorf("operationId %s twice", id)
				}
				ids[id] = true
				if v["security"] == nil || v["summary"] == nil {
					t.Errorf("%s: no security, or no summary", where)
				}
			}
			for name, child := range v {
				walk(where+"/"+name, child)
			}
		case []any:
			for i, child := range v {
				walk(where+"/"+strconv.Itoa(i), child)
			}
		}
	}
	walk("", d.root)
	schemas, _ := d.at("components", "schemas")
	for name := range schemas.(map[string]any) {
		if _, err := d.schemas.Compile(documentURL + "#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	codes, _ := d.at("components", "schemas", "Problem", "properties", "code", "enum")
	for _, code := range codes.([]any) {
		if c := problem.Code(code.(string)); problem.New(c, "").Code != c {
			t.Errorf("nothing answers the code %s", c)
		}
	}
}

// The documentation's paths have their parameters, each with the name that stands in the path.
func TestDocumentationNamesItsPathParameters(t *testing.T) {
	d := openAPI(t)
	for path := range d.root["paths"].(map[string]any) {
		var want, got []string
		for part := range strings.SplitSeq(path, "/") {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				want = append(want, strings.TrimSuffix(name, "}"))
			}
		}
		list, _ := d.at("paths", path, "parameters")
		parameters, _ := list.([]any)
		for _, p := range parameters {
			m := p.(map[string]any)
			if ref, ok := m["$ref"].(string); ok {
				found, _ := d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
				m = found.(map[string]any)
			}
			got = append(got, fmt.Sprint(m["name"]))
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: parameters %v, want %v", path, got, want)
		}
	}
}
