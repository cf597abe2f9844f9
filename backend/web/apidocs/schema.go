package apidocs

import (
	"strings"

	"sluice/internal/openapi"
)

// row describes a parameter, a header or a field. The name of a nested field has dots, and brackets for list items.
type row struct {
	Name, In, Limits, Example string
	Required                  bool
	Type                      kind
	Description               openapi.Value
}

// kind is the text for a type, or for the items of a list.
type kind struct {
	List bool
	Text string
	Link bool // the text is the name of a schema
}

// parameters returns the parameters of an operation.
func parameters(op openapi.Operation) []row {
	var rows []row
	for _, p := range op.Parameters() {
		rows = append(rows, parameter(p.Get("name").String(), p))
	}
	return rows
}

// headers returns the headers of a response.
func headers(response openapi.Value) []row {
	var rows []row
	for name, h := range response.Get("headers").Fields() {
		rows = append(rows, parameter(name, h))
	}
	return rows
}

func parameter(name string, p openapi.Value) row {
	s := p.Get("schema")
	r := row{
		Name: name, In: p.Get("in").String(), Required: p.Get("required").Is(), Type: kindOf(s), Limits: limits(s),
		Description: p.Get("description"), Example: p.Example().String(),
	}
	if !r.Description.Exists() {
		r.Description = s.Get("description")
	}
	return r
}

// kindOf returns the text for a type. A named schema is shown as a link.
func kindOf(s openapi.Value) kind {
	types := s.Get("type")
	switch {
	case !s.Exists():
		return kind{}
	case s.Ref != "":
		return kind{Text: s.Ref, Link: true}
	case s.Get("const").Exists():
		return kind{Text: "always " + string(s.Get("const").JSON())}
	case s.Get("enum").Exists():
		return kind{Text: "one of " + strings.Join(s.Get("enum").Strings(), ", ")}
	case types.IsList():
		return kind{Text: strings.Join(types.Strings(), " or ")}
	case types.String() == "array":
		items := kindOf(s.Get("items"))
		items.List = true
		return items
	case types.Exists():
		return kind{Text: types.String()}
	case s.Get("allOf").Exists():
		return kind{Text: "object"}
	case s.Get("oneOf").Exists():
		var texts []string
		for part := range s.Get("oneOf").Items() {
			texts = append(texts, kindOf(part).Text)
		}
		return kind{Text: strings.Join(texts, " or ")}
	}
	return kind{Text: "any value"}
}

// limits returns the constraints of a schema.
func limits(s openapi.Value) string {
	var all []string
	for _, l := range []struct{ name, text string }{
		{"format", "format "}, {"minimum", "minimum "}, {"maximum", "maximum "},
		{"minLength", "minimum length "}, {"maxLength", "maximum length "}, {"maxItems", "maximum items "},
		{"pattern", "pattern "}, {"default", "default "},
	} {
		if v := s.Get(l.name); v.Exists() {
			all = append(all, l.text+v.String())
		}
	}
	return strings.Join(all, "; ")
}

// fields returns the fields of a schema, and those of its unnamed parts.
func fields(s openapi.Value) []row {
	if items := s.Get("items"); items.Exists() && items.Ref == "" {
		return fieldsBelow(items, "[].")
	}
	return fieldsBelow(s, "")
}

func fieldsBelow(s openapi.Value, prefix string) []row {
	var rows []row
	for _, parts := range []string{"allOf", "oneOf"} {
		for part := range s.Get(parts).Items() {
			rows = append(rows, fieldsBelow(part, prefix)...)
		}
	}
	required := map[string]bool{}
	for _, name := range s.Get("required").Strings() {
		required[name] = true
	}
	for name, p := range s.Get("properties").Fields() {
		rows = append(rows, row{
			Name: prefix + name, Required: required[name], Type: kindOf(p), Limits: limits(p),
			Description: p.Get("description"), Example: p.Example().String(),
		})
		if p.Ref != "" { // described under its name
			continue
		}
		rows = append(rows, fieldsBelow(p, prefix+name+".")...)
		if items := p.Get("items"); items.Exists() && items.Ref == "" {
			rows = append(rows, fieldsBelow(items, prefix+name+"[].")...)
		}
	}
	return rows
}

// events returns the events of a stream, with the fields of their data.
func events(media openapi.Value) []row {
	var rows []row
	for name, data := range media.Get("x-events").Fields() {
		rows = append(rows, row{Name: name, Type: kindOf(data)})
		if data.Ref == "" {
			rows = append(rows, fieldsBelow(data, name+".")...)
		}
	}
	return rows
}
