package policy

import (
	"fmt"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"sluice/gateway/internal/ascii"
)

// typed returns the value of a field. It reports a value of another type; want describes the expected type. ok is
// false if there is no value of type T.
func typed[T lua.LValue](r *reader, t *lua.LTable, where position, name, want string) (v T, ok bool) {
	value := t.RawGetString(name)
	if v, ok = value.(T); !ok && value != lua.LNil {
		r.report(where.field(name), "%s must be %s, and is %s", name, want, describe(value))
	}
	return v, ok
}

// list returns the array in a field, or nil.
func (r *reader) list(t *lua.LTable, where position, name string, most int) []lua.LValue {
	list, ok := typed[*lua.LTable](r, t, where, name, "a list")
	if !ok {
		return nil
	}
	n := list.Len()
	if n > most {
		r.report(where.field(name), "%s has %d entries, and may have %d: remove some", name, n, most)
		return nil
	}
	keys := 0
	list.ForEach(func(_, _ lua.LValue) { keys++ })
	values := make([]lua.LValue, 0, n)
	for i := 1; i <= n; i++ {
		values = append(values, list.RawGetInt(i))
	}
	if keys != n || slices.Contains(values, lua.LNil) {
		r.report(where.field(name), "%s must be a list without names or gaps: { {...}, {...} }", name)
		return nil
	}
	return values
}

// checkFields reports every field of t that is not one of names.
func (r *reader) checkFields(t *lua.LTable, where position, what string, names ...string) {
	var unknown []string
	t.ForEach(func(k, _ lua.LValue) {
		s, ok := k.(lua.LString)
		if !ok {
			r.report(where, "%s has named fields only (%s), and not [%s]", what, strings.Join(names, ", "), describeKey(k))
		} else if !slices.Contains(names, string(s)) {
			unknown = append(unknown, string(s))
		}
	})
	slices.Sort(unknown)
	for _, name := range unknown {
		if near := nearest(name, names); near != "" {
			r.report(where.field(name), "%s has no field %s: did you mean %s?", what, quote(name), quote(near))
		} else {
			r.report(where.field(name), "%s has no field %s: it has %s", what, quote(name), strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(t *lua.LTable, where position, name string) string {
	s, ok := typed[lua.LString](r, t, where, name, "a string")
	if ok && s == "" {
		r.report(where.field(name), "%s must not be empty: give it a value or leave it out", name)
	}
	return string(s)
}

func (r *reader) flag(t *lua.LTable, where position, name string, otherwise bool) bool {
	if b, ok := typed[lua.LBool](r, t, where, name, "true or false"); ok {
		return bool(b)
	}
	return otherwise
}

// choice returns a string that must be one of choices; an empty default means that the field is required.
func (r *reader) choice(t *lua.LTable, where position, name, otherwise string, choices ...string) string {
	s, ok := typed[lua.LString](r, t, where, name, quoted(choices))
	if !ok {
		if otherwise == "" && t.RawGetString(name) == lua.LNil {
			r.report(where, "a rule needs a %s: %s", name, quoted(choices))
		}
		return otherwise
	}
	if !slices.Contains(choices, string(s)) {
		hint := ""
		if near := nearest(string(s), choices); near != "" {
			hint = ": did you mean " + quote(near) + "?"
		}
		r.report(where.field(name), "%s must be %s, and is %s%s", name, quoted(choices), quote(string(s)), hint)
	}
	return string(s)
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

func describe(v lua.LValue) string {
	switch v := v.(type) {
	case *lua.LNilType:
		return "nothing"
	case lua.LNumber:
		return "the number " + number(float64(v))
	case lua.LString:
		return "the string " + quote(string(v))
	case lua.LBool:
		return v.String()
	default:
		return "a " + v.Type().String()
	}
}

// describeKey describes a table key that is not a string.
func describeKey(k lua.LValue) string { return strings.TrimPrefix(describe(k), "the number ") }

// number formats f like Lua, which uses %.14g of C: as 0.5, 1e+20, nan, inf or -inf.
func number(f float64) string {
	return strings.TrimPrefix(strings.ToLower(fmt.Sprintf("%.14g", f)), "+")
}
