package policy

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// reader turns the table of a policy into a Policy and gathers every mistake on the way.
type reader struct {
	file     string
	mistakes Mistakes
}

func (r *reader) wrong(where place, format string, args ...any) {
	r.mistakes = append(r.mistakes, Mistake{File: r.file, Line: max(where.line, 1), What: oneLine(fmt.Sprintf(format, args...))})
}

func (r *reader) policy(t *lua.LTable, where place) *Policy {
	r.known(t, where, "a policy", "trusted_proxies", "rules")
	p := &Policy{}
	at := where.field("trusted_proxies")
	for i, v := range r.list(t, where, "trusted_proxies", MaxProxies) {
		if prefix, ok := r.proxy(v, at.item(i+1)); ok {
			p.TrustedProxies = append(p.TrustedProxies, prefix)
		}
	}
	if t.RawGetString("rules") == lua.LNil {
		r.wrong(where, "rules is missing: write rules = {} to limit nothing")
	}
	at = where.field("rules")
	seen := map[string]int{}
	for i, v := range r.list(t, where, "rules", MaxRules) {
		item := at.item(i + 1)
		rule, ok := r.rule(v, item)
		if !ok {
			continue
		}
		if first := seen[rule.Name]; first > 0 {
			r.wrong(item.field("name"), "rule %d is named %q like rule %d: names must differ", i+1, rule.Name, first)
		} else if rule.Name != "" {
			seen[rule.Name] = i + 1
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

func (r *reader) proxy(v lua.LValue, where place) (netip.Prefix, bool) {
	s, ok := v.(lua.LString)
	if !ok {
		r.wrong(where, `trusted_proxies holds strings such as "10.0.0.0/8", and not %s`, describe(v))
		return netip.Prefix{}, false
	}
	prefix, err := netip.ParsePrefix(string(s))
	if err != nil {
		addr, err := netip.ParseAddr(string(s))
		if err != nil || addr.Zone() != "" {
			r.wrong(where, `trusted_proxies: %q is not a network such as "10.0.0.0/8" or "2001:db8::/32"`, string(s))
			return netip.Prefix{}, false
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if addr := prefix.Addr(); addr.Is4In6() {
		if prefix.Bits() < 96 {
			r.wrong(where, "trusted_proxies: %q is wider than all IPv4 addresses", string(s))
			return netip.Prefix{}, false
		}
		prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), true
}

var (
	ruleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)
	rateForm = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,6})?)r/([smh])$`)
)

func (r *reader) rule(v lua.LValue, where place) (Rule, bool) {
	t, ok := v.(*lua.LTable)
	if !ok {
		r.wrong(where, "a rule is a table, and not %s", describe(v))
		return Rule{}, false
	}
	r.known(t, where, "a rule", "name", "key", "rate", "burst", "match", "delay", "mode", "on_error")
	rule := Rule{Name: r.text(t, where, "name", ""), Delay: r.flag(t, where, "delay")}
	if rule.Name == "" {
		if t.RawGetString("name") == lua.LNil {
			r.wrong(where, "a rule needs a name")
		}
	} else if !ruleName.MatchString(rule.Name) {
		r.wrong(where.field("name"), `name %q must be 1 to 32 letters, digits, "-" or "_"`, rule.Name)
	}
	rule.Key = Key(r.choice(t, where, "key", "", string(ByIP), string(ByToken)))
	rule.Rate = r.rate(t, where)
	rule.Burst = r.burst(t, where)
	rule.Match = r.match(t, where)
	rule.Mode = Mode(r.choice(t, where, "mode", string(Enforce), string(Enforce), string(Shadow)))
	rule.OnError = OnError(r.choice(t, where, "on_error", string(Deny), string(Deny), string(Allow)))
	return rule, true
}

func (r *reader) rate(t *lua.LTable, where place) Rate {
	where2 := where.field("rate")
	v := t.RawGetString("rate")
	if v == lua.LNil {
		r.wrong(where, `a rule needs a rate such as "20r/s"`)
		return Rate{}
	}
	s, ok := v.(lua.LString)
	if !ok {
		r.wrong(where2, `rate must be a string such as "20r/s", and is %s`, describe(v))
		return Rate{}
	}
	m := rateForm.FindStringSubmatch(string(s))
	if m == nil {
		r.wrong(where2, `rate %q is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h`, string(s))
		return Rate{}
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	rate := Rate{Requests: n, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]}
	switch {
	case n == 0:
		r.wrong(where2, "rate %q must be more than zero", string(s))
	case rate.PerSecond() > MaxRate:
		r.wrong(where2, "rate %q is more than %d requests a second", string(s), MaxRate)
	}
	return rate
}

func (r *reader) burst(t *lua.LTable, where place) int {
	v := t.RawGetString("burst")
	if v == lua.LNil {
		return 0
	}
	n, ok := v.(lua.LNumber)
	if !ok {
		r.wrong(where.field("burst"), "burst must be a whole number, and is %s", describe(v))
		return 0
	}
	f := float64(n)
	if f != math.Trunc(f) || f < 0 || f > MaxBurst {
		r.wrong(where.field("burst"), "burst must be a whole number from 0 to %d, and is %s", MaxBurst, n.String())
		return 0
	}
	return int(f)
}

var methodForm = regexp.MustCompile(`^[A-Z]{1,20}$`)

func (r *reader) match(t *lua.LTable, where place) Match {
	at := where.field("match")
	v := t.RawGetString("match")
	if v == lua.LNil {
		return Match{}
	}
	m, ok := v.(*lua.LTable)
	if !ok {
		r.wrong(at, `match must be a table such as { method = "POST", path = "/v1/sales/*/orders" }, and is %s`, describe(v))
		return Match{}
	}
	r.known(m, at, "match", "method", "path")
	match := Match{Method: r.text(m, at, "method", ""), Path: r.text(m, at, "path", "")}
	if match.Method != "" && !methodForm.MatchString(match.Method) {
		r.wrong(at.field("method"), `method %q is not an HTTP method in capitals such as "POST"`, match.Method)
	}
	if match.Path != "" {
		if what := badPattern(match.Path); what != "" {
			r.wrong(at.field("path"), "path %q %s", match.Path, what)
		}
	}
	return match
}

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
		r.wrong(at, "%s has %d entries, and may have %d", name, n, most)
		return nil
	}
	named := false
	list.ForEach(func(k, _ lua.LValue) {
		if i, ok := k.(lua.LNumber); !ok || float64(i) < 1 || float64(i) > float64(n) || float64(i) != math.Trunc(float64(i)) {
			named = true
		}
	})
	if named {
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
			r.wrong(where, "%s has named fields only (%s), and not [%s]", what, strings.Join(names, ", "), k.String())
		} else if !slices.Contains(names, string(s)) {
			unknown = append(unknown, string(s))
		}
	})
	slices.Sort(unknown)
	for _, name := range unknown {
		if near := nearest(name, names); near != "" {
			r.wrong(where.field(name), "%s has no field %q: did you mean %q?", what, name, near)
		} else {
			r.wrong(where.field(name), "%s has no field %q: it has %s", what, name, strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(t *lua.LTable, where place, name, otherwise string) string {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return otherwise
	case lua.LString:
		if v == "" {
			r.wrong(where.field(name), "%s must not be empty", name)
		}
		return string(v)
	default:
		r.wrong(where.field(name), "%s must be a string, and is %s", name, describe(v))
		return ""
	}
}

func (r *reader) flag(t *lua.LTable, where place, name string) bool {
	switch v := t.RawGetString(name).(type) {
	case *lua.LNilType:
		return false
	case lua.LBool:
		return bool(v)
	default:
		r.wrong(where.field(name), "%s must be true or false, and is %s", name, describe(v))
		return false
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
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		r.wrong(where.field(name), "%s must be %s, and is %q%s", name, quoted(choices), string(s), hint)
	}
	return string(s)
}

func quoted(choices []string) string {
	q := make([]string, len(choices))
	for i, c := range choices {
		q[i] = strconv.Quote(c)
	}
	return strings.Join(q, " or ")
}

func describe(v lua.LValue) string {
	switch v := v.(type) {
	case *lua.LNilType:
		return "nothing"
	case lua.LNumber:
		return "the number " + v.String()
	case lua.LString:
		s := string(v)
		if len(s) > 40 {
			s = s[:40] + "..."
		}
		return "the string " + strconv.Quote(s)
	case lua.LBool:
		return v.String()
	default:
		return "a " + v.Type().String()
	}
}
