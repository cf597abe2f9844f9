package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/policy"
)

// maxNotes bounds the notes in a policy. More could exceed policy.MaxSize, such as one for each line of a block list.
const maxNotes = 100

// Policy returns the text of the policy that was converted from the file at path. The first notes are comments in it.
func (r *Result) Policy(path string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "-- Converted from %s. Before use:\n", comment(filepath.Base(path)))
	b.WriteString("--   sluice policy check FILE\n--   sluice policy replay LOG --policy FILE\n")
	if len(r.Notes) > 0 {
		b.WriteString("-- Without equivalent, or with another meaning:\n")
		for _, n := range r.Notes[:min(len(r.Notes), maxNotes)] {
			fmt.Fprintf(&b, "--   %s\n", comment(n.Error()))
		}
		if more := len(r.Notes) - maxNotes; more > 0 {
			fmt.Fprintf(&b, "--   and %d more, which sluice policy import prints\n", more)
		}
	}
	b.WriteString("\nreturn {\n")
	if len(r.TrustedProxies) > 0 {
		b.WriteString("  trusted_proxies = {\n")
		for _, p := range r.TrustedProxies {
			fmt.Fprintf(&b, "    %s,\n", quote(p.String()))
		}
		b.WriteString("  },\n")
	}
	b.WriteString("  rules = {\n")
	for _, rule := range r.Rules {
		fmt.Fprintf(&b, "    -- %s\n    ", comment(rule.Source))
		writeRule(&b, rule.Rule)
		b.WriteString(",\n")
	}
	b.WriteString("  },\n}\n")
	return b.Bytes()
}

// writeRule writes a rule as a Lua table, without the fields that have their defaults.
func writeRule(b *bytes.Buffer, r policy.Rule) {
	fmt.Fprintf(b, "{ name = %s, key = %s, rate = %s, burst = %d", quote(r.Name), quote(string(r.Key)),
		quote(r.Rate.String()), r.Burst)
	if r.Delay {
		b.WriteString(", delay = true")
	}
	var match []string
	if r.Match.Method != "" {
		match = append(match, "method = "+quote(r.Match.Method))
	}
	if r.Match.Path != "" {
		match = append(match, "path = "+quote(r.Match.Path))
	}
	if len(match) > 0 {
		fmt.Fprintf(b, ", match = { %s }", strings.Join(match, ", "))
	}
	if r.Mode == policy.Shadow {
		b.WriteString(`, mode = "shadow"`)
	}
	if r.OnError == policy.Allow {
		b.WriteString(`, on_error = "allow"`)
	}
	b.WriteString(" }")
}

// quote returns a string of a policy. What that cannot contain becomes "?", which is valid in no field.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, "?", `\`, "?").Replace(ascii.ReplaceControls(s, '?')) + `"`
}

// comment returns text that ends within its line.
func comment(s string) string { return ascii.ReplaceControls(strings.ToValidUTF8(s, "?"), ' ') }
