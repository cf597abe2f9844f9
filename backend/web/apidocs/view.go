package apidocs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/htmltemplate"
	"sluice/internal/openapi"
)

// view is the data of the template.
type view struct {
	Info    openapi.Value
	Groups  []group
	Schemas []named // by name
	Schemes []named
	Source  string
	Style   htmltemplate.CSS
}

func newView(doc *openapi.Document, source string, style htmltemplate.CSS) view {
	schemas := each(doc.At("components", "schemas"))
	slices.SortFunc(schemas, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
	return view{
		Info: doc.At("info"), Groups: groups(doc), Schemas: schemas,
		Schemes: each(doc.At("components", "securitySchemes")), Source: source, Style: style,
	}
}

// named is a field of a mapping.
type named struct {
	Name  string
	Value openapi.Value
}

// each returns the fields of a mapping, in the order of the document.
func each(v openapi.Value) (all []named) {
	for name, value := range v.Fields() {
		all = append(all, named{name, value})
	}
	return all
}

// group is a tag, its operations and its webhooks.
type group struct {
	Value                openapi.Value
	Operations, Webhooks []openapi.Operation
}

// groups returns the operations and webhooks by tag, in the order of the document.
func groups(doc *openapi.Document) []group {
	var groups []group
	for tag := range doc.At("tags").Items() {
		name := tag.Get("name").String()
		groups = append(groups, group{tag, tagged(doc.Operations(), name), tagged(doc.Webhooks(), name)})
	}
	return groups
}

func tagged(all iter.Seq[openapi.Operation], tag string) (found []openapi.Operation) {
	for op := range all {
		if slices.Contains(op.Get("tags").Strings(), tag) {
			found = append(found, op)
		}
	}
	return found
}

// functions are the functions of the template.
var functions = htmltemplate.Funcs{
	"curl":       curl,
	"events":     events,
	"examples":   examples,
	"fields":     fields,
	"headers":    headers,
	"kind":       kindOf,
	"each":       each,
	"exists":     openapi.Value.Exists,
	"get":        openapi.Value.Get,
	"is":         openapi.Value.Is,
	"parameters": parameters,
	"prose":      prose,
	"responses":  responses,
	"schemes":    schemes,
	"table":      newTable,
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
	Name   string // of the status, such as Not Found
	Kind   string // first digit of the status
	Open   bool   // shown without a click
	Value  openapi.Value
}

// responses returns the responses with a status below 400, or the others.
func responses(op openapi.Operation, failed bool) []response {
	var all []response
	for status, r := range op.Get("responses").Fields() {
		if (status >= "4") == failed {
			code, _ := strconv.Atoi(status)
			all = append(all, response{status, http.StatusText(code), status[:1], !failed, r})
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
