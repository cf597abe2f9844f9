package apidocs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"sluice/internal/openapi"
)

// view is the data of the template.
type view struct {
	*openapi.Document
	Source string
	Style  template.CSS
}

// group is a tag and its operations.
type group struct {
	openapi.Value
	Operations []openapi.Operation
}

// Groups returns the operations by tag, in the order of the document.
func (v view) Groups() []group {
	var groups []group
	for tag := range v.At("tags").Items() {
		g := group{Value: tag}
		for op := range v.Operations() {
			if slices.Contains(op.Get("tags").Strings(), tag.Get("name").String()) {
				g.Operations = append(g.Operations, op)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// Schemas returns the names of the schemas.
func (v view) Schemas() []string {
	return slices.Sorted(maps.Keys(maps.Collect(v.At("components", "schemas").Fields())))
}

// functions are the functions of the template.
var functions = template.FuncMap{
	"curl": curl, "events": events, "examples": examples, "fields": fields, "headers": headers, "kind": kindOf,
	"parameters": parameters, "prose": prose, "responses": responses, "schemes": schemes, "table": newTable,
}

// table is the data of a table in the template.
type table struct {
	Head  string // heading of the first column
	Label string // for screen readers
	Rows  []row
}

func newTable(head, label string, rows []row) table { return table{head, label, rows} }

// response is a response of an operation.
type response struct {
	Status string
	openapi.Value
}

// Kind is the first digit of the status.
func (r response) Kind() string { return r.Status[:1] }

// responses returns the responses with a status below 400, or the others.
func responses(op openapi.Operation, failed bool) []response {
	var all []response
	for status, r := range op.Get("responses").Fields() {
		if (status >= "4") == failed {
			all = append(all, response{status, r})
		}
	}
	return all
}

// schemes returns the alternatives to authenticate. They are empty for no authentication.
func schemes(op openapi.Operation) []string {
	var all []string
	for requirement := range op.Get("security").Items() {
		for name := range requirement.Fields() {
			all = append(all, name)
		}
	}
	return all
}

type example struct{ Name, Text string }

// examples returns the examples of a media type, or of its schema.
func examples(name string, media openapi.Value) []example {
	if e := media.Get("example"); e.Exists() {
		return []example{{Text: indented(e)}}
	}
	var all []example
	for title, e := range media.Get("examples").Fields() {
		all = append(all, example{title, indented(e.Get("value"))})
	}
	if e := media.Get("schema").Example(); all == nil && e.Exists() && name == "application/json" {
		all = []example{{Text: indented(e)}}
	}
	return all
}

func indented(v openapi.Value) string {
	if text := v.String(); strings.Contains(text, "\n") { // an event stream
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, v.JSON(), "", "  ") != nil {
		return v.String()
	}
	return b.String()
}

// curl returns a curl command for the example request of an operation.
func curl(op openapi.Operation) (string, error) {
	r, err := op.Request()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("curl")
	if r.Method != "GET" && (r.Method != "POST" || r.Body == nil) {
		b.WriteString(" -X " + r.Method)
	}
	fmt.Fprintf(&b, " \"$SLUICE_URL%s\"", r.Path)
	if len(schemes(op)) > 0 {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $TOKEN\"")
	}
	for _, h := range r.Header {
		fmt.Fprintf(&b, " \\\n  -H '%s: %s'", h[0], h[1])
	}
	if r.Body != nil {
		fmt.Fprintf(&b, " \\\n  -d '%s'", strings.ReplaceAll(string(r.Body), "'", `'\''`))
	}
	return b.String(), nil
}
