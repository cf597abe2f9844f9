package testenv

import (
	"path/filepath"
	"strconv"
)

// StartSentinel starts a Redis Sentinel with a configuration, which it rewrites, and stops it when the test ends.
func StartSentinel(t TB, config string) *Redis {
	t.Helper()
	port := FreePort(t)
	r := &Redis{
		Addr: "127.0.0.1:" + strconv.Itoa(
			port,
		),
		t:    t,
		bin:  Find(t, "redis-server", "redis-server"),
		Dir:  filepath.Dir(config),
		args: []string{config, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1"},
	}
	r.URL = "redis://" + r.Addr + "/0"
	r.Start()
	t.Cleanup(r.Kill)
	return r
}
