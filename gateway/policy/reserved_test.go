package policy

import "testing"

func TestReservedPath(t *testing.T) {
	for path, want := range map[string]Reserved{
		"/": NotReserved, "/healthz": HealthPath, "/healthz/": NotReserved, "/Healthz": NotReserved, "/admin": HiddenPath,
		"/admin/v1/sales": HiddenPath,
		"/ADMIN/v1":       HiddenPath, "/administrator": HiddenPath, "/metrics": HiddenPath, "/metrics/": HiddenPath,
		"/Metrics": HiddenPath, "/metricsx": NotReserved,
		"/debug/pprof/": HiddenPath, "/v1/admin": NotReserved, "/v1/sales": NotReserved,
	} {
		if got := ReservedPath([]byte(path)); got != want {
			t.Errorf("%q is %d, want %d", path, got, want)
		}
	}
}
