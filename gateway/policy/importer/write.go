package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/policy"
)

// Bounds of the comments in a policy, which must not exceed policy.MaxSize: a block list has a note for each line.
const (
	maxNotes   = 100
	maxComment = 400 // bytes
)

// Policy returns the text of the policy that was converted from the file at path. It has the first notes as comments,
// if there is room.
func (r *Result) Policy(path string) []byte {
	content := r.content()
	var b bytes.Buffer
	fmt.Fprintf(&b, "-- Converted from %s. Before use:\n", comment(filepath.Base(path)))
	b.WriteString("--   sluice policy check FILE\n--   sluice policy replay LOG --policy FILE\n")
	if len(r.Notes) > 0 {
		b.WriteString("-- Without equivalent, or with another meaning:\n")
	}
	for i, n := range r.Notes {
		if i == maxNotes || b.Len()+len(content)+2*maxComment > policy.MaxSize {
			fmt.Fprintf(&b, "--   and %d more, which sluice policy import prints\n", len(r.Notes)-i)
			break
		}
		fmt.Fprintf(&b, "--   %s\n", comment(n.Error()))
	}
	return append(b.Bytes(), content...)
}

// content returns the policy without the comments above it.
func (r *Result) content() []byte {
	var b bytes.Buffer
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

// quote returns s as a string of a policy. Characters that such a string cannot contain become "?". No field may
// contain "?", so a check of the policy reports the string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, "?", `\`, "?").Replace(ascii.ReplaceControls(s, '?')) + `"`
}

// comment returns text that ends within its line. It cuts long text.
func comment(s string) string {
	s = ascii.ReplaceControls(strings.ToValidUTF8(s, "?"), ' ')
	if len(s) > maxComment {
		s = strings.ToValidUTF8(s[:maxComment-len("...")], "") + "..."
	}
	return s
}
