package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/gateway/internal/ascii"
)

// typed returns the value of a field. It reports a value of another type; want describes the expected type. ok is
// false if there is no value of type T.
func typed[T any](r *reader, t value, name, want string) (v T, ok bool) {
	field := t.field(name)
	if v, ok = field.data.(T); !ok && field.data != nil {
		r.report(field, "%s must be %s, and is %s", name, want, describe(field.data))
	}
	return v, ok
}

// list returns the list in a field, or nil.
func (r *reader) list(t value, name string, most int) []value {
	list, ok := typed[*table](r, t, name, "a list")
	switch {
	case !ok:
		return nil
	case len(list.list) > most:
		r.report(t.field(name), "%s has %d entries, and may have %d: remove some", name, len(list.list), most)
		return nil
	case len(list.fields) > 0:
		r.report(t.field(name), "%s must be a list without names: { {...}, {...} }", name)
		return nil
	}
	return list.list
}

// checkFields reports every field of a table that is not one of names.
func (r *reader) checkFields(t value, what string, names ...string) {
	given := t.data.(*table)
	if len(given.list) > 0 {
		r.report(t, "%s has named fields only (%s), and not [1]", what, strings.Join(names, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(given.fields)) {
		if slices.Contains(names, name) {
			continue
		}
		if near := nearest(name, names); near != "" {
			r.report(t.field(name), "%s has no field %s: did you mean %s?", what, quote(name), quote(near))
		} else {
			r.report(t.field(name), "%s has no field %s: it has %s", what, quote(name), strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(t value, name string) string {
	s, ok := typed[string](r, t, name, "a string")
	if ok && s == "" {
		r.report(t.field(name), "%s must not be empty: give it a value or leave it out", name)
	}
	return s
}

func (r *reader) flag(t value, name string, otherwise bool) bool {
	if b, ok := typed[bool](r, t, name, "true or false"); ok {
		return b
	}
	return otherwise
}

// choice returns a string that must be one of choices, or otherwise if the field is missing. If otherwise is empty, the
// field is required.
func (r *reader) choice(t value, name, otherwise string, choices ...string) string {
	s, ok := typed[string](r, t, name, quoted(choices))
	if !ok {
		if otherwise == "" && t.field(name).data == nil {
			r.report(t, "a rule needs a %s: %s", name, quoted(choices))
		}
		return otherwise
	}
	if !slices.Contains(choices, s) {
		hint := ""
		if near := nearest(s, choices); near != "" {
			hint = ": did you mean " + quote(near) + "?"
		}
		r.report(t.field(name), "%s must be %s, and is %s%s", name, quoted(choices), quote(s), hint)
	}
	return s
}

func quoted(choices []string) string {
	q := make([]string, len(choices))
	for i, c := range choices {
		q[i] = quote(c)
	}
	return strings.Join(q, " or ")
}

// quote returns s as messages contain it. The nginx edge quotes in the same way.
func quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return `"` + ascii.ReplaceControls(s, '?') + `"`
}

// describe returns the data of a value as messages contain it.
func describe(data any) string {
	switch data := data.(type) {
	case nil:
		return "nothing"
	case float64:
		return "the number " + number(data)
	case string:
		return "the string " + quote(data)
	case bool:
		return fmt.Sprint(data)
	default:
		return "a table"
	}
}

// number formats f like Lua, which uses %.14g of C.
func number(f float64) string { return fmt.Sprintf("%.14g", f) }
