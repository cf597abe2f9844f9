package edges

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// Both edges export the same counts under the same names.
func TestEdgesExportTheSameMetrics(t *testing.T) { overBoth(t, edgesExportTheSameMetrics) }

func edgesExportTheSameMetrics(t *testing.T, socket bool) {
	const policy = `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
		{ name = "ip", key = "ip", rate = "100r/s", burst = 50 },
		{ name = "slow", key = "ip", rate = "1r/h", burst = 0, match = { path = "/slow" } },
		{ name = "trial", key = "ip", rate = "1r/h", burst = 0, mode = "shadow" },
		{ name = "token", key = "token", rate = "10r/m", burst = 1, match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`
	both := startBoth(t, options{policy: policy, socket: socket}, play)
	const last = "Connection: close"
	want := []string{
		`malformed_total 5`,
		`requests_total{rule="ip",verdict="allow"} 7`, // including the request with the bad token
		`requests_total{rule="slow",verdict="allow"} 1`,
		`requests_total{rule="slow",verdict="deny"} 1`,
		`requests_total{rule="token",verdict="allow"} 2`,
		`requests_total{rule="trial",verdict="allow"} 1`,
		`requests_total{rule="trial",verdict="shadow"} 6`,
		`rule_info{burst="0",key="ip",match="",mode="shadow",on_error="allow",rate="0.000277778r/s",rule="trial",scope="edge"} 1`,
		`rule_info{burst="0",key="ip",match="/slow",mode="enforce",on_error="deny",rate="0.000277778r/s",rule="slow",scope="edge"} 1`,
		`rule_info{burst="1",key="token",match="POST /v1/sales/*/orders",mode="enforce",on_error="deny",rate="0.166667r/s",rule="token",scope="edge"} 1`,
		`rule_info{burst="50",key="ip",match="",mode="enforce",on_error="deny",rate="100r/s",rule="ip",scope="edge"} 1`,
		`unauthorized_total 1`,
		`upstream_seconds_bucket{le="+Inf"} 7`,
		`upstream_seconds_bucket{le="10"} 7`,
		`upstream_seconds_count{} 7`,
	}
	for _, e := range both {
		for _, raw := range []string{
			request("GET", "/", last), request("GET", "/nothing", last), request("GET", "/slow", last),
			request("GET", "/slow", last), request("GET", "/v1/orders/none", last),
			request(
				"POST", "/v1/sales/1/orders", bearer(t, "ann"), last,
			), request("POST", "/v1/sales/1/orders", bearer(t, "ann"), last),
			request("POST", "/v1/sales/1/orders", "Token: x", last), request("GET", "/much", last),
			"GET /a//b HTTP/1.1\r\nHost: x\r\n\r\n", post("Content-Length: 17000"),
			getHead + "A: " + strings.Repeat("a", 9000) + "\r\n\r\n",
			"POST /a//b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
			request("POST", "/admin", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		} {
			e.send(t, raw)
		}
		var got []string
		testenv.Eventually(t, time.Minute, e.name+" has counted all", func() bool {
			got = counted(e, want)
			return slices.Equal(got, want) || t.Failed()
		})
		// A backend that has exited is counted as a failure to connect, also if a browser gets the page.
		e.backend.Close()
		for n, accept := range []string{"*/*", "text/html"} {
			e.send(t, request("GET", "/", "Accept: "+accept, last))
			testenv.Eventually(t, time.Minute, e.name+" has counted a failure", func() bool {
				return strings.Contains(e.metrics(), fmt.Sprintf(
					`sluice_edge_upstream_failures_total{failure="dial",upstream=%q} %d`, e.backend.address, n+1))
			})
		}
	}
}

// counted returns the metrics of the edge that want names, without labels that depend on the run.
func counted(e *edge, want []string) (got []string) {
	plain := strings.NewReplacer("sluice_edge_", "", `,upstream="`+e.backend.address+`"`, "",
		`upstream="`+e.backend.address+`",`, "", `upstream="`+e.backend.address+`"`, "")
	for line := range strings.Lines(e.metrics()) {
		line = plain.Replace(strings.TrimSpace(line))
		name, _, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, name+" ") }) {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	return got
}
