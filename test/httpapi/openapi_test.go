package httpapi

import (
	"strconv"
	"testing"

	"go.yaml.in/yaml/v4"

	"sluice/backend/web/httpserver/servertest"
	"sluice/docs"
	"sluice/internal/openapi"
	"sluice/internal/problem"
)

func TestDocumentationListsExactlyTheRoutes(t *testing.T) {
	b := startBackend(t, "5-M")
	served := map[string]bool{}
	for _, r := range append(b.public.Server.Routes(), b.admin.Server.Routes()...) {
		served[r.Method+" "+r.Documented()] = true
	}
	documented := map[string]bool{}
	for _, op := range servertest.Contract(t).Operations() {
		documented[op.Method+" "+op.Path] = true
	}
	for r := range served {
		if !documented[r] {
			t.Errorf("docs/openapi.yaml does not document %s", r)
		}
	}
	for r := range documented {
		if !served[r] {
			t.Errorf("docs/openapi.yaml documents %s, which no server serves", r)
		}
	}
}

// Loading the document validates it: references, path parameters, operation ids and examples.
func TestOperationsAreDescribed(t *testing.T) {
	for _, op := range servertest.Contract(t).Operations() {
		if op.OperationID == "" || op.Security == nil || op.Summary == "" || op.Description == "" || len(op.Tags) != 1 {
			t.Errorf("%s %s needs an operationId, security, a summary, a description and one tag", op.Method, op.Path)
		}
		if op.RequestBody == nil || !op.RequestBody.Value.Required {
			continue
		}
		if body := op.RequestBody.Value.Content["application/json"]; body != nil && body.Example == nil {
			t.Errorf("%s: the request body has no example", op.OperationID)
		}
	}
}

func TestDocumentedProblemCodesExist(t *testing.T) {
	schema := servertest.Contract(t).Document.Components.Schemas["Problem"].Value
	for _, value := range schema.Properties["code"].Value.Enum {
		if code := problem.Code(value.(string)); problem.New(code, "").Code != code {
			t.Errorf("package problem does not define the code %s", code)
		}
	}
}

func TestOperationsHaveExampleRequests(t *testing.T) {
	d, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for op := range d.Operations() {
		if _, err := op.Request(); err != nil {
			t.Error(err)
		}
	}
}

// Client generators derive types from const and enum only with a type beside them, and name the types after components
// of every kind.
func TestDocumentSuitsClientGenerators(t *testing.T) {
	var document map[string]any
	if err := yaml.Unmarshal(docs.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	for _, at := range untyped("", document) {
		t.Errorf("%s: add a type beside const or enum", at)
	}
	kinds := map[string]string{}
	for kind, components := range document["components"].(map[string]any) {
		if kind == "headers" || kind == "securitySchemes" {
			continue // they become no types
		}
		for name := range components.(map[string]any) {
			if other := kinds[name]; other != "" {
				t.Errorf("the name %s is in components/%s and components/%s", name, kind, other)
			}
			kinds[name] = kind
		}
	}
}

// untyped returns the paths of the schemas at or below a node that have const or enum and no type.
func untyped(path string, node any) []string {
	var found []string
	switch n := node.(type) {
	case map[string]any:
		_, hasConst := n["const"]
		_, hasEnum := n["enum"]
		if (hasConst || hasEnum) && n["type"] == nil {
			found = append(found, path)
		}
		for name, child := range n {
			found = append(found, untyped(path+"/"+name, child)...)
		}
	case []any:
		for i, child := range n {
			found = append(found, untyped(path+"/"+strconv.Itoa(i), child)...)
		}
	}
	return found
}
