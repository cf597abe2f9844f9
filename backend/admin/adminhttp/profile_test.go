package adminhttp

import (
	"strings"
	"testing"
)

func TestProfilesNeedTheToken(t *testing.T) {
	s := newFakeService().serve(t)
	if a := s.Do("GET", "/debug/pprof/heap", ""); a.Status != 401 {
		t.Errorf("without the token: %d", a.Status)
	}
	if a := s.operate("GET", "/debug/pprof/goroutine?debug=1", ""); a.Status != 200 ||
		!strings.Contains(a.Body, "goroutine profile: total") {
		t.Errorf("goroutines: %d %.100s", a.Status, a.Body)
	}
	if a := s.operate("GET", "/debug/pprof/heap", ""); a.Status != 200 || !strings.HasPrefix(a.Body, "\x1f\x8b") {
		t.Errorf("heap: %d %.100q", a.Status, a.Body)
	}
	for path, status := range map[string]int{
		"/debug/pprof/cmdline": 404, "/debug/pprof/nothing": 404, "/debug/pprof/profile?seconds=61": 400,
		"/debug/pprof/goroutine?seconds=99999": 400, "/debug/pprof/profile?seconds=%2B63": 400,
		"/debug/pprof/profile?seconds=-1": 400, "/debug/pprof/trace?seconds=1e3": 400,
		"/debug/pprof/trace?seconds=61&seconds=1": 400, "/debug/pprof/heap?seconds=9223372036854775808": 400,
		"/debug/pprof/trace?seconds=0.01": 400, "/debug/pprof/heap?seconds=0": 400,
	} {
		if a := s.operate("GET", path, ""); a.Status != status {
			t.Errorf("%s: %d, want %d", path, a.Status, status)
		}
	}
}
