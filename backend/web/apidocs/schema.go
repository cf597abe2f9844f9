package apidocs

import (
	"html/template"
	"strings"

	"sluice/internal/openapi"
)

// row is a parameter, a header, or a member of an object. Members of members have dots in their names, and members of a list's items brackets.
type row struct {
	Name, In, Limits, Example string
	Required                  bool
	Type                      kind
	About                     template.HTML
}

// kind is a type in words, with a link where it has a name.
type kind struct{ Before, Text, Link, After string }

func parameterRow(name, in string, p openapi.Value) row {
	s := p.Get("schema")
	about := p.Get("description").Text()
	if about == "" {
		about = s.Get("description").Text()
	}
	return row{
		Name: name, In: in, Required: p.Get("required").Is(), Type: kindOf(s, true), Limits: limits(s), About: prose(about), Example: p.Example().Text(),
	}
}

// kindOf names a type; linked refers to one that has a name by that.
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
	return kind{Text: "anything"}
}

// limits are what a schema says of its values beside their type.
func limits(s openapi.Value) string {
	var all []string
	for _, l := range []struct{ name, say string }{
		{"format", "format "}, {"minimum", "at least "}, {"maximum", "at most "}, {"minLength", "length at least "}, {"maxLength", "length at most "},
		{"maxItems", "items at most "}, {"pattern", "matches "}, {"default", "default "},
	} {
		if v := s.Get(l.name); v.Exists() {
			all = append(all, l.say+v.Text())
		}
	}
	return strings.Join(all, "; ")
}

// deepest bounds how far members of members are shown in one table.
const deepest = 4

func rowsOf(s openapi.Value) []row { return members(s, "", 0) }

func members(s openapi.Value, prefix string, depth int) []row {
	if depth > deepest {
		return nil
	}
	var rows []row
	for part := range s.Get("allOf").Items() {
		rows = append(rows, members(part, prefix, depth+1)...)
	}
	if items := s.Get("items"); items.Exists() && items.Ref == "" && depth == 0 {
		rows = append(rows, members(items, prefix+"[].", depth+1)...)
	}
	required := map[string]bool{}
	for _, name := range s.Get("required").Texts() {
		required[name] = true
	}
	for name, p := range s.Get("properties").Fields() {
		rows = append(rows, row{
			Name: prefix + name, Required: required[name], Type: kindOf(p, true), Limits: limits(p), About: prose(p.Get("description").Text()), Example: p.Example().Text(),
		})
		if p.Ref != "" { // has a place of its own
			continue
		}
		rows = append(rows, members(p, prefix+name+".", depth+1)...)
		if items := p.Get("items"); items.Exists() && items.Ref == "" {
			rows = append(rows, members(items, prefix+name+"[].", depth+1)...)
		}
	}
	return rows
}
