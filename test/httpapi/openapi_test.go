package httpapi

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/openapi"
	"sluice/internal/problem"
)

func TestDocumentationListsEveryRouteAndNoOther(t *testing.T) {
	b := startBackend(t)
	there := map[string]bool{}
	for _, r := range append(b.public.Server.Routes(), b.admin.Server.Routes()...) {
		there[r.Method+" "+r.Documented()] = true
	}
	listed := map[string]bool{}
	for op := range servertest.Contract(t).Document().Operations() {
		listed[op.Method+" "+op.Path] = true
	}
	for r := range there {
		if !listed[r] {
			t.Errorf("docs/openapi.yaml lacks %s", r)
		}
	}
	for r := range listed {
		if !there[r] {
			t.Errorf("docs/openapi.yaml lists %s, which no server answers", r)
		}
	}
}

func TestDocumentationIsWhole(t *testing.T) {
	c := servertest.Contract(t)
	d := c.Document()
	if version := d.At("openapi").Text(); version != "3.1.0" {
		t.Errorf("openapi: %v", version)
	}
	ids := map[string]bool{}
	for op := range d.Operations() {
		id := op.Get("operationId").Text()
		if id == "" || ids[id] {
			t.Errorf("%s %s: operationId %q is missing or there twice", op.Method, op.Path, id)
		}
		ids[id] = true
		if !op.Get("security").Exists() || !op.Get("summary").Exists() || len(op.Get("tags").Texts()) != 1 {
			t.Errorf("%s: no security, no summary, or not one tag", id)
		}
	}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && !d.At(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).Exists() {
				t.Errorf("%s: %s leads nowhere", where, ref)
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
	walk("", d.Root().Any())
	for name, schema := range d.At("components", "schemas").Fields() {
		if err := c.Compile(schema); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	for _, text := range d.At("components", "schemas", "Problem", "properties", "code", "enum").Texts() {
		if code := problem.Code(text); problem.New(code, "").Code != code {
			t.Errorf("nothing answers the code %s", code)
		}
	}
}

// The documentation's paths have their parameters, each with the name that stands in the path.
func TestDocumentationNamesItsPathParameters(t *testing.T) {
	for op := range servertest.Contract(t).Document().Operations() {
		var want, got []string
		for part := range strings.SplitSeq(op.Path, "/") {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				want = append(want, strings.TrimSuffix(name, "}"))
			}
		}
		for _, p := range op.Parameters() {
			if p.Get("in").Text() == "path" {
				got = append(got, p.Get("name").Text())
			}
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: parameters %v, want %v", op.Path, got, want)
		}
	}
}

// Every example in the documentation is what it is an example of.
func TestDocumentationsExamplesAreValid(t *testing.T) {
	c := servertest.Contract(t)
	d := c.Document()
	n := 0
	check := func(schema openapi.Value, where string, examples ...openapi.Value) {
		for _, e := range examples {
			n++
			if err := c.Valid(schema, e.JSON()); err != nil {
				t.Errorf("%s: %v\n%s", where, err, e.JSON())
			}
		}
	}
	media := func(content openapi.Value, where string) {
		for _, m := range content.Fields() {
			if e := m.Get("example"); e.Exists() {
				check(m.Get("schema"), where, e)
			}
			for name, e := range m.Get("examples").Fields() {
				check(m.Get("schema"), where+" "+name, e.Get("value"))
			}
		}
	}
	for op := range d.Operations() {
		id := op.Get("operationId").Text()
		for _, p := range op.Parameters() {
			if e := p.Get("example"); e.Exists() {
				check(p.Get("schema"), id+" "+p.Get("name").Text(), e)
			}
		}
		if body := op.Get("requestBody"); body.Get("content").Get("application/json").Exists() && body.Get("required").Is() && !body.Get("content").Get("application/json").Example().Exists() {
			t.Errorf("%s has no example of its body", id)
		}
		if _, err := op.Request(); err != nil {
			t.Error(err)
		}
		media(op.Get("requestBody").Get("content"), id)
		for status, r := range op.Get("responses").Fields() {
			media(r.Get("content"), id+" "+status)
		}
	}
	for name, schema := range d.At("components", "schemas").Fields() {
		check(schema, name, slices.Collect(schema.Get("examples").Items())...)
	}
	if n < 50 {
		t.Errorf("%d examples were found; there are more", n)
	}
}
