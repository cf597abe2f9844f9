package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// list is the array in the field called name, or nil.
func (r *reader) list(t *lua.LTable, where place, name string, most int) []lua.LValue {
	v := t.RawGetString(name)
	if v == lua.LNil {
		return nil
	}
	at := where.field(name)
	list, ok := v.(*lua.LTable)
	if !ok {
		r.wrong(at, "%s must be a list, and is %s", name, describe(v))
		return nil
	}
	n := list.Len()
	if n > most {
		r.wrong(at, "%s has %d entries, and may have %d: take some out", name, n, most)
		return nil
	}
	count, named := 0, false
	list.ForEach(func(k, _ lua.LValue) {
		count++
		if i, ok := k.(lua.LNumber); !ok || float64(i) < 1 || float64(i) > float64(n) || float64(i) != math.Trunc(float64(i)) {
			named = true
		}
	})
	if named || count != n {
		r.wrong(at, "%s must be a list without names or gaps: { {...}, {...} }", name)
		return nil
	}
	values := make([]lua.LValue, 0, n)
	for i := 1; i <= n; i++ {
		values = append(values, list.RawGetInt(i))
	}
	return values
}

// known complains about every field of t that is not one of names.
func (r *reader) known(t *lua.LTable, where place, what string, names ...string) {
	var unknown []string
	t.ForEach(func(k, _ lua.LValue) {
		s, ok := k.(lua.LString)
		if !ok {
			r.wrong(where, "%s has named fields only (%s), and not [%s]", what, strings.Join(names, ", "), describeKey(k))
		} else if !slices.Contains(names, string(s)) {
			unknown = append(unknown, string(s))
		}
	})
	slices.Sort(unknown)
	for _, name := range unknown {
		if near := nearest(name, names); near != "" {
			r.wrong(where.field(name), "%s has no field %s: did you mean %s?", what, quote(name), quote(near))
		} else {
			r.wrong(where.field(name), "%s has no field %s: it has %s", what, quote(name), strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(t *lua.LTable, where place, name, otherwise string) string {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return otherwise
	case lua.LString:
		if v == "" {
			r.wrong(where.field(name), "%s must not be empty: give it a value or leave it out", name)
		}
		return string(v)
	default:
		r.wrong(where.field(name), "%s must be a string, and is %s", name, describe(v))
		return ""
	}
}

func (r *reader) flag(t *lua.LTable, where place, name string, otherwise bool) bool {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return otherwise
	case lua.LBool:
		return bool(v)
	default:
		r.wrong(where.field(name), "%s must be true or false, and is %s", name, describe(v))
		return otherwise
	}
}

// choice is a string out of a few; otherwise "" means that it must be there.
func (r *reader) choice(t *lua.LTable, where place, name, otherwise string, choices ...string) string {
	v := t.RawGetString(name)
	if v == lua.LNil {
		if otherwise == "" {
			r.wrong(where, "a rule needs a %s: %s", name, quoted(choices))
		}
		return otherwise
	}
	s, ok := v.(lua.LString)
	if !ok {
		r.wrong(where.field(name), "%s must be %s, and is %s", name, quoted(choices), describe(v))
		return otherwise
	}
	if !slices.Contains(choices, string(s)) {
		hint := ""
		if near := nearest(string(s), choices); near != "" {
			hint = ": did you mean " + quote(near) + "?"
		}
		r.wrong(where.field(name), "%s must be %s, and is %s%s", name, quoted(choices), quote(string(s)), hint)
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

// quote is s as a message shows it: the nginx edge says the same bytes.
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

// describeKey is the key of a table that should have been a name.
func describeKey(k lua.LValue) string {
	switch k := k.(type) {
	case lua.LNumber:
		return number(float64(k))
	case lua.LBool:
		return k.String()
	}
	return "a " + k.Type().String()
}

// number writes f as C's %.14g does, which is Lua's own form.
func number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return map[bool]string{true: "inf", false: "-inf"}[f > 0]
	}
	return fmt.Sprintf("%.14g", f)
}
