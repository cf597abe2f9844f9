package apidocs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"sluice/internal/openapi"
)

// view is the data of the template.
type view struct {
	Title, Version, Summary, Source string
	Description                     template.HTML
	Style                           template.CSS
	Groups                          []group
	Schemas                         []schema
	Schemes                         []scheme
}

// group is the operations with one tag.
type group struct {
	Name, Description string
	Operations        []operation
}

type operation struct {
	ID, Method, Path, Summary string
	Description               template.HTML
	Schemes                   []string // alternatives; empty for no authentication
	Parameters                []row
	Body                      *body
	Responses                 []response // statuses below 400
	Errors                    []response
	Curl                      string
}

type body struct {
	Required    bool
	Description template.HTML
	content
}

type response struct {
	Status, Kind string // Kind is the first digit
	Description  template.HTML
	Headers      []row
	content
}

// content is a schema and its examples.
type content struct {
	Media    string
	Type     kind
	Rows     []row
	Events   []row // for an event stream
	Examples []example
}

type example struct{ Name, Text string }

// schema is a named schema.
type schema struct {
	Name        string
	Description template.HTML
	Type        kind
	Rows        []row
}

// scheme is a way to authenticate.
type scheme struct {
	Name        string
	Description template.HTML
}

func viewOf(doc *openapi.Document, style template.CSS, source string) view {
	info := doc.At("info")
	v := view{
		Title: info.Get("title").Text(), Version: info.Get("version").Text(), Summary: info.Get("summary").Text(),
		Source: source, Description: prose(info.Get("description").Text()), Style: style,
	}
	byTag := map[string][]operation{}
	var order []string
	for tag := range doc.At("tags").Items() {
		order = append(order, tag.Get("name").Text())
	}
	for op := range doc.Operations() {
		tag := "other"
		if tags := op.Get("tags").Texts(); len(tags) > 0 {
			tag = tags[0]
		}
		if !slices.Contains(order, tag) {
			order = append(order, tag)
		}
		byTag[tag] = append(byTag[tag], operationOf(op))
	}
	for _, tag := range order {
		g := group{Name: tag, Operations: byTag[tag]}
		for t := range doc.At("tags").Items() {
			if t.Get("name").Text() == tag {
				g.Description = t.Get("description").Text()
			}
		}
		v.Groups = append(v.Groups, g)
	}
	for name, s := range doc.At("components", "schemas").Fields() {
		v.Schemas = append(v.Schemas, schema{
			Name: name, Description: prose(s.Get("description").Text()), Type: kindOf(s, false), Rows: rowsOf(s),
		})
	}
	slices.SortFunc(v.Schemas, func(a, b schema) int { return strings.Compare(a.Name, b.Name) })
	for name, s := range doc.At("components", "securitySchemes").Fields() {
		header := "Authorization: Bearer"
		if s.Get("type").Text() == "apiKey" {
			header = s.Get("name").Text() + ":"
		}
		v.Schemes = append(v.Schemes, scheme{name, prose("`" + header + " …`: " + s.Get("description").Text())})
	}
	return v
}

func operationOf(op openapi.Operation) operation {
	o := operation{
		ID: op.Get("operationId").Text(), Method: op.Method, Path: op.Path, Summary: op.Get("summary").Text(),
		Description: prose(op.Get("description").Text()), Curl: curl(op),
	}
	for requirement := range op.Get("security").Items() {
		for name := range requirement.Fields() {
			o.Schemes = append(o.Schemes, name)
		}
	}
	for _, p := range op.Parameters() {
		o.Parameters = append(o.Parameters, parameterRow(p.Get("name").Text(), p.Get("in").Text(), p))
	}
	if b := op.Get("requestBody"); b.Exists() {
		o.Body = &body{b.Get("required").Is(), prose(b.Get("description").Text()), contentOf(b.Get("content"))}
	}
	for status, r := range op.Get("responses").Fields() {
		item := response{
			Status: status, Kind: status[:1], Description: prose(r.Get("description").Text()),
			content: contentOf(r.Get("content")),
		}
		for name, h := range r.Get("headers").Fields() {
			item.Headers = append(item.Headers, parameterRow(name, "", h))
		}
		if item.Kind < "4" {
			o.Responses = append(o.Responses, item)
		} else {
			o.Errors = append(o.Errors, item)
		}
	}
	return o
}

// contentOf returns the content of the first media type.
func contentOf(list openapi.Value) content {
	for media, v := range list.Fields() {
		c := content{Media: media, Type: kindOf(v.Get("schema"), true)}
		if c.Type.Link == "" {
			c.Rows = rowsOf(v.Get("schema"))
		}
		for name, data := range v.Get("x-events").Fields() {
			c.Events = append(c.Events, row{Name: name, Type: kindOf(data, true)})
			if data.Ref == "" {
				c.Events = append(c.Events, fields(data, name+".", 0)...)
			}
		}
		if e := v.Get("example"); e.Exists() {
			c.Examples = append(c.Examples, example{Text: indented(e)})
		}
		for name, e := range v.Get("examples").Fields() {
			c.Examples = append(c.Examples, example{Name: name, Text: indented(e.Get("value"))})
		}
		if e := v.Get("schema").Example(); len(c.Examples) == 0 && e.Exists() && media == "application/json" {
			c.Examples = append(c.Examples, example{Text: indented(e)})
		}
		return c
	}
	return content{}
}

func indented(v openapi.Value) string {
	if text := v.Text(); strings.Contains(text, "\n") { // an event stream
		return text
	}
	var b bytes.Buffer
	if json.Indent(&b, v.JSON(), "", "  ") != nil {
		return v.Text()
	}
	return b.String()
}

// curl returns a curl command for the example request of an operation.
func curl(op openapi.Operation) string {
	r, err := op.Request()
	if err != nil {
		r = openapi.Request{Method: op.Method, Path: op.Path}
	}
	var b strings.Builder
	b.WriteString("curl")
	if r.Method != "GET" && (r.Method != "POST" || r.Body == nil) {
		fmt.Fprintf(&b, " -X %s", r.Method)
	}
	fmt.Fprintf(&b, " \"$SLUICE_URL%s\"", r.Path)
	for requirement := range op.Get("security").Items() {
		for range requirement.Fields() {
			b.WriteString(" \\\n  -H \"Authorization: Bearer $TOKEN\"")
		}
		break
	}
	for _, h := range r.Header {
		fmt.Fprintf(&b, " \\\n  -H '%s: %s'", h[0], h[1])
	}
	if r.Body != nil {
		fmt.Fprintf(&b, " \\\n  -d '%s'", strings.ReplaceAll(string(r.Body), "'", `'\''`))
	}
	return b.String()
}

// table is the data of a table in the template.
type table struct {
	Head  string // heading of the first column
	Label string // for screen readers
	Rows  []row
}

// ParameterTable returns the parameters of an operation.
func (o operation) ParameterTable() table {
	return table{"Name", "Parameters: " + o.Summary, o.Parameters}
}

// HeaderTable returns the headers of a response.
func (r response) HeaderTable() table { return table{"Header", "Headers", r.Headers} }

// FieldTable returns the fields of a body.
func (c content) FieldTable() table { return table{"Field", "Fields", c.Rows} }

// EventTable returns the events of a stream.
func (c content) EventTable() table { return table{"Event", "Events", c.Events} }

// FieldTable returns the fields of a named schema.
func (s schema) FieldTable() table { return table{"Field", "Fields of " + s.Name, s.Rows} }
