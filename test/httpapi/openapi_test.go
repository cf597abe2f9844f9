package httpapi

import (
	"testing"

	"sluice/backend/web/httpserver/servertest"
	"sluice/docs"
	"sluice/internal/openapi"
	"sluice/internal/problem"
)

func TestDocumentationListsExactlyTheRoutes(t *testing.T) {
	b := startBackend(t)
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
		if op.OperationID == "" || op.Security == nil || op.Summary == "" || len(op.Tags) != 1 {
			t.Errorf("%s %s needs an operationId, security, a summary and one tag", op.Method, op.Path)
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
