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
        "200":
          description: A loop
          content: { application/json: { schema: { $ref: "#/components/schemas/Round" } } }
webhooks:
  a: { post: { tags: [a], requestBody: { content: { application/json: { schema: { $ref: "#/components/schemas/OfA" } } } } } }
  b: { post: { tags: [b], requestBody: { content: { application/json: { schema: { $ref: "#/components/schemas/OfB" } } } } } }
components:
  securitySchemes: { one: { type: http }, two: { type: http } }
  parameters: { ID: { name: id, in: path } }
  responses:
    Thing:
      description: A thing
      content: { application/json: { schema: { $ref: "#/components/schemas/Thing" } } }
  schemas:
    Thing: { type: object, properties: { deep: { $ref: "#/components/schemas/Deep" } } }
    Deep: { type: string, pattern: "^[a/b]~$" }
    Other: { type: string }
    OfA: { type: string }
    OfB: { type: string }
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

func TestGetResolvesReferencesAndAliases(t *testing.T) {
	d := parse(t, small)
	schema := d.At("paths", "/a/{id}", "post", "responses", "200", "content", "application/json", "schema")
	pattern := schema.Get("properties").Get("deep").Get("pattern").String()
	if schema.Ref != "Thing" || pattern != "^[a/b]~$" {
		t.Errorf("got schema %+v with pattern %s, want Thing", schema, pattern)
	}
	if d.At("components", "schemas", "Round").Exists() || d.At("none", "at", "all").Exists() {
		t.Error("a missing node exists")
	}
	var ids []string
	for op := range d.Operations() {
		ids = append(ids, op.Method+" "+op.Path)
		for _, p := range op.Parameters() {
			ids = append(ids, p.Get("name").String())
		}
	}
	if want := []string{"GET /a/{id}", "id", "POST /a/{id}", "id", "GET /b"}; !slices.Equal(ids, want) {
		t.Errorf("got operations %v, want %v", ids, want)
	}
}

func TestKeepRemovesUnreferencedComponents(t *testing.T) {
	d := parse(t, small)
	d.Keep(func(method, path string) bool { return method == "POST" && path == "/a/{id}" })
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	for _, kept := range [][]string{
		{"paths", "/a/{id}", "post", "responses", "200", "content"},
		{"components", "schemas", "Thing"}, {"components", "schemas", "Deep"}, {"components", "parameters", "ID"},
		{"webhooks", "b", "post"}, {"components", "schemas", "OfB"},
	} {
		if !again.At(kept...).Exists() {
			t.Errorf("the part does not contain %v\n%s", kept, text)
		}
	}
	for _, removed := range [][]string{
		{"paths", "/b"}, {"paths", "/a/{id}", "get"}, {"components", "schemas", "Other"},
		{"components", "schemas", "Round"}, {"components", "securitySchemes"},
		{"webhooks", "a"}, {"components", "schemas", "OfA"},
	} {
		if again.At(removed...).Exists() {
			t.Errorf("the part contains %v\n%s", removed, text)
		}
	}
	if servers := slices.Collect(again.At("servers").Items()); len(servers) != 1 || servers[0].Get("url").String() != "/" {
		t.Errorf("got other servers than /\n%s", text)
	}
	if strings.Contains(string(text), "name: a") || !strings.Contains(string(text), "name: b") {
		t.Errorf("got other tags than b\n%s", text)
	}
}

func TestParseRejectsOtherText(t *testing.T) {
	for _, text := range []string{"", "- a", "a: [", "text"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%q) returned no error", text)
		}
	}
}
