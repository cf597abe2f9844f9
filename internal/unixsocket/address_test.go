package unixsocket

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	longest := "/" + strings.Repeat("a", maxPath-1)
	for _, address := range []string{
		"unix:/run/sluice/backend.sock", "unix:/a", "unix:/a.b_c-D9/..x", "unix:" + longest,
	} {
		if err := Check(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{
		"", "/a", "unix:", "unix:/", "unix:a", "unix:./a", "unix:@a", "unix://a", "unix:///a", "unix:/a/", "unix:/a//b",
		"unix:/a/../b", "unix:/a/./b", "unix:/..", "unix:/a b", "unix:/a,b", "unix:/a;b", "unix:/a:b", "unix:/a{", "unix:/a$b",
		`unix:/a"`, `unix:/a\b`, "unix:/a\nb", "unix:/a\x00", "unix:/a\n", "unix:/é", "unix:/a#", "unix:/*", "UNIX:/a",
		"unix:" + longest + "a",
	} {
		if Check(address) == nil {
			t.Errorf("%.40q: want an error", address)
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
