package openapi

import (
	"slices"
	"strings"
	"testing"
)

const small = `
openapi: 3.1.0
servers: [{ url: "http://127.0.0.1:1" }, { url: "http://127.0.0.1:2" }]
tags: [{ name: a }, { name: b }]
paths:
  /a/{id}:
    parameters: [{ $ref: "#/components/parameters/ID" }]
    get:
      tags: [a]
      security: [{ one: [] }]
      responses: &same
        "200": { $ref: "#/components/responses/Thing" }
    post:
      tags: [b]
      responses: *same
  /b:
    get:
      tags: [b]
      security: [{ two: [] }]
      responses:
        "200": { description: A loop, content: { application/json: { schema: { $ref: "#/components/schemas/Round" } } } }
components:
  securitySchemes: { one: { type: http }, two: { type: http } }
  parameters: { ID: { name: id, in: path } }
  responses: { Thing: { description: A thing, content: { application/json: { schema: { $ref: "#/components/schemas/Thing" } } } } }
  schemas:
    Thing: { type: object, properties: { deep: { $ref: "#/components/schemas/Deep" } } }
    Deep: { type: string, pattern: "^[a/b]~$" }
    Other: { type: string }
    Round: { $ref: "#/components/schemas/Round" }
`

func parse(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Looking at a place follows references and aliases, and says where it is.
func TestReferencesAreFollowed(t *testing.T) {
	d := parse(t, small)
	schema := d.At("paths", "/a/{id}", "post", "responses", "200", "content", "application/json", "schema")
	if schema.Ref != "Thing" || schema.Pointer != "/components/schemas/Thing" || schema.Get("properties").Get("deep").Get("pattern").Text() != "^[a/b]~$" {
		t.Errorf("%+v", schema)
	}
	if at := d.At("paths", "/b", "get").Pointer; at != "/paths/~1b/get" {
		t.Errorf("the pointer is %s", at)
	}
	if d.At("components", "schemas", "Round").Exists() || d.At("none", "at", "all").Exists() {
		t.Error("a place that is not there is there")
	}
	var ids []string
	for op := range d.Operations() {
		ids = append(ids, op.Method+" "+op.Path)
		for _, p := range op.Parameters() {
			ids = append(ids, p.Get("name").Text())
		}
	}
	if want := []string{"GET /a/{id}", "id", "POST /a/{id}", "id", "GET /b"}; !slices.Equal(ids, want) {
		t.Errorf("operations %v, want %v", ids, want)
	}
}

// A part has its operations, what they need, and nothing else; the document it was taken from has all it had.
func TestPartIsWhole(t *testing.T) {
	d := parse(t, small)
	part, err := d.Part(func(method, path string) bool { return method == "POST" && path == "/a/{id}" })
	if err != nil {
		t.Fatal(err)
	}
	text, err := part.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	for _, there := range [][]string{{"paths", "/a/{id}", "post", "responses", "200", "content"}, {"components", "schemas", "Thing"}, {"components", "schemas", "Deep"}, {"components", "parameters", "ID"}} {
		if !again.At(there...).Exists() {
			t.Errorf("%v is not there\n%s", there, text)
		}
	}
	for _, gone := range [][]string{{"paths", "/b"}, {"paths", "/a/{id}", "get"}, {"components", "schemas", "Other"}, {"components", "schemas", "Round"}, {"components", "securitySchemes"}} {
		if again.At(gone...).Exists() {
			t.Errorf("%v is there\n%s", gone, text)
		}
	}
	if servers := slices.Collect(again.At("servers").Items()); len(servers) != 1 || servers[0].Get("url").Text() != "/" {
		t.Errorf("servers\n%s", text)
	}
	if strings.Contains(string(text), "name: a") || !strings.Contains(string(text), "name: b") {
		t.Errorf("tags\n%s", text)
	}
	if !d.At("paths", "/b", "get").Exists() || !d.At("components", "schemas", "Other").Exists() {
		t.Error("the whole has lost something")
	}
}

func TestWhatIsNoDocument(t *testing.T) {
	for _, text := range []string{"", "- a", "a: [", "text"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q is taken for a document", text)
		}
	}
}
