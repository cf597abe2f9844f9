package redisscript

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// names returns the names of all scripts.
func names(t *testing.T) []string {
	t.Helper()
	matches, err := fs.Glob(files, "*.lua")
	if err != nil || len(matches) < 30 {
		t.Fatalf("found %d scripts, %v", len(matches), err)
	}
	for i, m := range matches {
		matches[i] = strings.TrimSuffix(m, ".lua")
	}
	return matches
}

func TestScriptsHaveHeaders(t *testing.T) {
	for _, name := range names(t) {
		text := Source(name)
		if !strings.HasPrefix(text, "-- "+name+": ") {
			t.Errorf("%s.lua: the first line does not begin with the name", name)
		}
		for _, part := range []string{"\n-- KEYS 1 ", "\n-- ARGV ", "\n-- Returns "} {
			if !strings.Contains(text, part) {
				t.Errorf("%s.lua: the header has no %q", name, part)
			}
		}
		if include.MatchString(text) {
			t.Errorf("%s.lua: an include contains an include", name)
		}
	}
}

func TestIncludesAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, name := range names(t) {
		for _, m := range include.FindAllStringSubmatch(read(name+".lua"), -1) {
			used[m[1]] = true
		}
	}
	matches, err := fs.Glob(files, "include/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range matches {
		if name := strings.TrimSuffix(strings.TrimPrefix(m, "include/"), ".lua"); !used[name] {
			t.Errorf("no script includes %s", m)
		}
	}
}

// Redis Cluster requires that a script declares every key. The test finds the first argument of every command: it must
// be KEYS[n], a local that is assigned from KEYS, or a parameter of a local function.
func TestScriptsDeclareEveryKey(t *testing.T) {
	var (
		call = regexp.MustCompile(`\bp?call\('(\w+)'(?:, '(?:STREAM|GROUPS|CONSUMERS|CREATE|DELCONSUMER|GROUP', group, id, ` +
			`'COUNT', n, 'STREAMS)')?(?:, (unpack\(KEYS|[\w.\[\]]+))?`)
		locals     = regexp.MustCompile(`(?m)^local ([\w, ]+) =\s+KEYS\[`)
		parameters = regexp.MustCompile(`(?m)^local function \w+\(([\w, ]+)\)`)
	)
	found := 0
	for _, name := range names(t) {
		text := Source(name)
		declared := map[string]bool{"requests[i]": true, "orders": true} // admit takes both from KEYS
		for _, list := range append(locals.FindAllStringSubmatch(text, -1), parameters.FindAllStringSubmatch(text, -1)...) {
			for n := range strings.SplitSeq(list[1], ", ") {
				declared[n] = true
			}
		}
		for _, c := range call.FindAllStringSubmatch(text, -1) {
			if c[1] == "TIME" || c[1] == "PUBLISH" {
				continue
			}
			found++
			if !declared[c[2]] && !strings.HasPrefix(c[2], "KEYS[") && c[2] != "unpack(KEYS" {
				t.Errorf("%s.lua: %s of %q, which is not one of its KEYS", name, c[1], c[2])
			}
		}
	}
	if found < 200 {
		t.Errorf("found only %d commands", found)
	}
}
