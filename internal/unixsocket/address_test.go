package unixsocket

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	longest := "/" + strings.Repeat("a", maxPath-1)
	for address, want := range map[string]string{
		"unix:/run/sluice/backend.sock": "/run/sluice/backend.sock",
		"unix:/a":                       "/a",
		"unix:/a.b_c-D9/..x":            "/a.b_c-D9/..x",
		"unix:" + longest:               longest,
	} {
		if path, err := Parse(address); path != want || err != nil {
			t.Errorf("%s: %q, %v", address, path, err)
		}
	}
	for _, address := range []string{
		"", "/a", "unix:", "unix:/", "unix:a", "unix:./a", "unix:@a", "unix://a", "unix:///a", "unix:/a/", "unix:/a//b",
		"unix:/a/../b", "unix:/a/./b", "unix:/..", "unix:/a b", "unix:/a,b", "unix:/a;b", "unix:/a:b", "unix:/a{", "unix:/a$b",
		`unix:/a"`, `unix:/a\b`, "unix:/a\nb", "unix:/a\x00", "unix:/a\n", "unix:/é", "unix:/a#", "unix:/*", "UNIX:/a",
		"unix:" + longest + "a",
	} {
		if path, err := Parse(address); path != "" || err == nil {
			t.Errorf("%.40q: %q, %v, want an error", address, path, err)
		}
	}
}

func TestNetwork(t *testing.T) {
	for address, want := range map[string][2]string{
		"unix:/a": {"unix", "/a"}, "backend:80": {"tcp", "backend:80"}, "[::1]:80": {"tcp", "[::1]:80"},
	} {
		if network, to := Network(address); network != want[0] || to != want[1] {
			t.Errorf("%s: %s %s", address, network, to)
		}
	}
}
