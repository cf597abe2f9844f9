package apidocs

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice/docs"
	"sluice/internal/openapi"
)

var write = flag.String("write", "", "file to write the page of docs/openapi.yaml to, for inspection")

func pageOf(t *testing.T, text []byte) string {
	t.Helper()
	d, err := openapi.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(d, "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(p.Gzip))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(r); err != nil || !bytes.Equal(unpacked, p.Body) {
		t.Errorf("Gzip does not contain HTML (%v)", err)
	}
	policy := p.Headers[0].Value
	if strings.Contains(policy, "unsafe") || !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("got policy %q, want default-src 'none' and the hash of the style", policy)
	}
	return string(p.Body)
}

func TestPageContainsAllOperationsAndSchemas(t *testing.T) {
	page := pageOf(t, docs.OpenAPI)
	if *write != "" {
		if err := os.WriteFile(*write, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for op := range d.Operations() {
		if !strings.Contains(page, `<article id="`+op.Get("operationId").String()+`"`) {
			t.Errorf("the page does not contain %s %s", op.Method, op.Path)
		}
	}
	for hook := range d.Webhooks() {
		if !strings.Contains(page, `<article id="`+hook.Get("operationId").String()+`"`) {
			t.Errorf("the page does not contain the webhook %s", hook.Path)
		}
	}
	for name := range d.At("components", "schemas").Fields() {
		if !strings.Contains(page, `<article id="schema-`+name+`"`) {
			t.Errorf("the page does not contain the schema %s", name)
		}
	}
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(`\sid="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		ids[m[1]]++
	}
	for id, n := range ids {
		if n > 1 {
			t.Errorf("the page contains the id %s %d times", id, n)
		}
	}
	for _, m := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if id, inside := strings.CutPrefix(m[1], "#"); inside && ids[id] == 0 || !inside && m[1] != "/openapi.yaml" {
			t.Errorf("the target of the link %s does not exist, or is on another host", m[1])
		}
	}
	for _, field := range []string{"samples[].queue.ready", "samples[].latency.p99"} { // null, or an object
		if !strings.Contains(page, "<code>"+field+"</code>") {
			t.Errorf("the page does not contain the field %s", field)
		}
	}
	if !strings.Contains(page, "<td>null or object</td>") {
		t.Error("the page does not contain the type of a field that is null or an object")
	}
	for _, heading := range []string{"Authentication", "Parameters", "Request", "Response", "Errors"} {
		if !strings.Contains(page, ">"+heading+"</h") {
			t.Errorf("the page has no heading %q", heading)
		}
	}
	for _, text := range []string{"<script", "<img", "<link", "style=", "onclick", "<no value>", "ZgotmplZ", "%!"} {
		if strings.Contains(page, text) {
			t.Errorf("the page contains %q", text)
		}
	}
}

func TestPageEscapesTextOfTheDocument(t *testing.T) {
	page := pageOf(t, []byte(`
openapi: 3.1.0
info: { title: "<b>T</b>", version: "1", description: "a <script>alert(1)</script> `+"`<i>`"+` **<u>**" }
tags: [{ name: t }]
paths:
  /x/{id}:
    parameters:
      - { name: id, in: path, required: true, description: "<p>", schema: { type: string, examples: ["<x>"] } }
    post:
      operationId: x
      tags: [t]
      summary: "<h1>"
      requestBody: { content: { application/json: { example: { text: "it's </pre>" } } } }
      responses: { "200": { description: "</details>" } }
`))
	for _, text := range []string{"<b>T", "<script>alert", "<i>", "<u>", "<x>", "it's </pre>", `<h1>"`} {
		if strings.Contains(page, text) {
			t.Errorf("the page contains %q", text)
		}
	}
	for _, text := range []string{"<code>&lt;i&gt;</code>", "<strong>&lt;u&gt;</strong>", "&lt;h1&gt;"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not contain %q\n%s", text, page)
		}
	}
}
