package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// list returns the array in a field, or nil.
func (r *reader) list(t *lua.LTable, where position, name string, most int) []lua.LValue {
	v := t.RawGetString(name)
	if v == lua.LNil {
		return nil
	}
	at := where.field(name)
	list, ok := v.(*lua.LTable)
	if !ok {
		r.report(at, "%s must be a list, and is %s", name, describe(v))
		return nil
	}
	n := list.Len()
	if n > most {
		r.report(at, "%s has %d entries, and may have %d: take some out", name, n, most)
		return nil
	}
	count, named := 0, false
	list.ForEach(func(k, _ lua.LValue) {
		count++
		if i, ok := k.(lua.LNumber); !ok || float64(i) < 1 || float64(i) > float64(n) ||
			float64(i) != math.Trunc(float64(i)) {
			named = true
		}
	})
	if named || count != n {
		r.report(at, "%s must be a list without names or gaps: { {...}, {...} }", name)
		return nil
	}
	values := make([]lua.LValue, 0, n)
	for i := 1; i <= n; i++ {
		values = append(values, list.RawGetInt(i))
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

func (r *reader) text(t *lua.LTable, where position, name, otherwise string) string {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return otherwise
	case lua.LString:
		if v == "" {
			r.report(where.field(name), "%s must not be empty: give it a value or leave it out", name)
		}
		return string(v)
	default:
		r.report(where.field(name), "%s must be a string, and is %s", name, describe(v))
		return ""
	}
}

func (r *reader) flag(t *lua.LTable, where position, name string, otherwise bool) bool {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return otherwise
	case lua.LBool:
		return bool(v)
	default:
		r.report(where.field(name), "%s must be true or false, and is %s", name, describe(v))
		return otherwise
	}
}

// choice returns a string that must be one of choices; an empty default means that the field is required.
func (r *reader) choice(t *lua.LTable, where position, name, otherwise string, choices ...string) string {
	v := t.RawGetString(name)
	if v == lua.LNil {
		if otherwise == "" {
			r.report(where, "a rule needs a %s: %s", name, quoted(choices))
		}
		return otherwise
	}
	s, ok := v.(lua.LString)
	if !ok {
		r.report(where.field(name), "%s must be %s, and is %s", name, quoted(choices), describe(v))
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
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s) + `"`
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
func describeKey(k lua.LValue) string {
	switch k := k.(type) {
	case lua.LNumber:
		return number(float64(k))
	case lua.LBool:
		return k.String()
	}
	return "a " + k.Type().String()
}

// number formats f like Lua, which uses %.14g of C.
func number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return map[bool]string{true: "inf", false: "-inf"}[f > 0]
	}
	return fmt.Sprintf("%.14g", f)
}
