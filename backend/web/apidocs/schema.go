package apidocs

import (
	"html/template"
	"strings"

	"sluice/internal/openapi"
)

// row describes a parameter, a header or a field. The name of a nested field has dots, and brackets for list items.
type row struct {
	Name, In, Limits, Example string
	Required                  bool
	Type                      kind
	Description               template.HTML
}

// kind is the text for a type, with a link if the schema has a name.
type kind struct{ Before, Text, Link, After string }

func parameterRow(name, in string, p openapi.Value) row {
	s := p.Get("schema")
	description := p.Get("description").Text()
	if description == "" {
		description = s.Get("description").Text()
	}
	return row{
		Name: name, In: in, Required: p.Get("required").Is(), Type: kindOf(s, true), Limits: limits(s),
		Description: prose(description), Example: p.Example().Text(),
	}
}

// kindOf returns the text for a type. If linked is set, a named schema is shown as a link.
func kindOf(s openapi.Value, linked bool) kind {
	switch {
	case !s.Exists():
		return kind{}
	case linked && s.Ref != "" && strings.HasPrefix(s.Pointer, "/components/schemas/"):
		return kind{Text: s.Ref, Link: s.Ref}
	case s.Get("const").Exists():
		return kind{Text: "always " + string(s.Get("const").JSON())}
	case s.Get("enum").IsList():
		return kind{Text: "one of " + strings.Join(s.Get("enum").Texts(), ", ")}
	case s.Get("type").IsList():
		return kind{Text: strings.Join(s.Get("type").Texts(), " or ")}
	case s.Get("type").Text() == "array":
		item := kindOf(s.Get("items"), true)
		item.Before = "list of " + item.Before
		return item
	case s.Get("type").Exists():
		return kind{Text: s.Get("type").Text()}
	case s.Get("allOf").IsList():
		return kind{Text: "object"}
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
			all = append(all, l.text+v.Text())
		}
	}
	return strings.Join(all, "; ")
}

// maxDepth is the maximum nesting of fields in one table.
const maxDepth = 4

func rowsOf(s openapi.Value) []row { return fields(s, "", 0) }

func fields(s openapi.Value, prefix string, depth int) []row {
	if depth > maxDepth {
		return nil
	}
	var rows []row
	for part := range s.Get("allOf").Items() {
		rows = append(rows, fields(part, prefix, depth+1)...)
	}
	if items := s.Get("items"); items.Exists() && items.Ref == "" && depth == 0 {
		rows = append(rows, fields(items, prefix+"[].", depth+1)...)
	}
	required := map[string]bool{}
	for _, name := range s.Get("required").Texts() {
		required[name] = true
	}
	for name, p := range s.Get("properties").Fields() {
		rows = append(rows, row{
			Name: prefix + name, Required: required[name], Type: kindOf(p, true), Limits: limits(p),
			Description: prose(p.Get("description").Text()), Example: p.Example().Text(),
		})
		if p.Ref != "" { // described under its name
			continue
		}
		rows = append(rows, fields(p, prefix+name+".", depth+1)...)
		if items := p.Get("items"); items.Exists() && items.Ref == "" {
			rows = append(rows, fields(items, prefix+name+"[].", depth+1)...)
		}
	}
	return rows
}
