package nginx

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sluice/gateway/policy"
	"sluice/gateway/replay"
)

// A replay of the edge's log through the edge's policy has the edge's verdicts.
func TestReplayOfEdgeLogAgreesWithEdge(t *testing.T) {
	t.Parallel()
	source := `return { ` + trusting + ` rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 5 },
		{ name = "token", key = "token", rate = "1r/h", burst = 1, match = { method = "POST", path = "/v1/sales/*/orders" } },
		{ name = "trial", key = "ip",    rate = "1r/h", burst = 2, mode = "shadow" },
	} }`
	e := startEdge(t, source, nil)
	did := map[int]int{}
	for i := range 60 {
		headers := from(fmt.Sprint("192.0.2.", i%6))
		switch i % 5 {
		case 0, 1:
			did[e.do("GET", "/v1/sales?x=1", headers...).status]++
		case 2:
			did[e.send(
				"POST", "/v1/sales/1/orders", "{}", append(headers, "Authorization", signed(t, fmt.Sprint(`b"`, i%4)))...,
			).status]++
		case 3:
			did[e.send("POST", "/V1/sales/2/orders/", "{}", append(headers, "Authorization", signed(t, "ann"))...).status]++
		case 4:
			did[e.send("POST", "/v1/sales/1/orders", "{}", append(headers, "Authorization", "Bearer nonsense")...).status]++
		}
	}
	if did[200] == 0 || did[401] == 0 || did[429] == 0 {
		t.Fatalf("the traffic does not have every verdict: %v", did)
	}
	e.do("GET", "/admin")
	e.complete(61)
	got := replayed(t, source, filepath.Join(e.cfg.Prefix, "logs/access.log"))
	if got.BadLines != 0 || got.Requests != 60 || got.NotEvaluated != 1 || got.RefusedBefore != int64(did[429]) ||
		got.Unauthorized != int64(did[401]) {
		t.Errorf("the log has %d requests, %d bad lines, %d refused, %d unauthorized; the edge answered %v", got.Requests,
			got.BadLines, got.RefusedBefore, got.Unauthorized, did)
	}
	if s := got.Policy; s.Passed != int64(did[200]) || s.Refused != int64(did[429]) || s.Unauthorized != int64(did[401]) {
		t.Errorf("the replay admits %d, refuses %d by limits and %d for their token; the edge answered %v", s.Passed,
			s.Refused, s.Unauthorized, did)
	}
	over := int64(0)
	for _, entry := range e.logged(1, 200) {
		if entry["shadow"] == "trial" {
			over++
		}
	}
	if rule := got.Policy.Rules[1]; rule.Name != "trial" || rule.ShadowRefused < over || over == 0 {
		t.Errorf("the shadow was over %d times at least, and in the replay: %+v", over, rule)
	}
}

func replayed(t *testing.T, source, log string) *replay.Report {
	t.Helper()
	p, err := policy.Parse("policy.lua", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	report, err := replay.Run(t.Context(), replay.Config{New: p, Inputs: []replay.Input{{Name: log, Reader: f}}})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A zone holds the buckets that `sluice policy check` reports, or a few more.
func TestZoneHoldsWhatPolicyCheckReports(t *testing.T) {
	server, stop := startLua(t, "2m")
	defer stop()
	var holds int
	_, err := fmt.Sscan(server.run(t, `
		local rule, n = { count = 1, period = 3600e6, tolerance = 0, failed = "error test" }, 0
		while require("take").take({ rule }, { "buyer " .. n }) do n = n + 1 end
		return n
	`), &holds)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(path, []byte(`return { rules = { { name = "ip", key = "ip", rate = "20r/s" } } }`),
		0o600); err != nil {
		t.Fatal(err)
	}
	for keys, enough := range map[int]bool{holds * 85 / 100: true, holds * 105 / 100: false} {
		_, warnings, err := policy.Inspect(path, policy.Sizing{Keys: keys, Zone: 2 << 20, Buckets: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		sufficient := true
		for _, w := range warnings {
			sufficient = sufficient && w.Message[:4] != "with"
		}
		if sufficient != enough {
			t.Errorf("a zone of 2 MB holds %d keys, and for %d the check reports %v", holds, keys, warnings)
		}
	}
}
