package nginx

import (
	"fmt"
	"math"
)

// Spans makes nginx send a line about each sampled request, see snippets/spans.conf.
type Spans struct {
	Address      string  // host:port that takes syslog messages over UDP
	Tag          string  // of the messages; at most 32 letters and digits
	Metrics      string  // Unix socket from which the metrics listener adds metrics
	FollowParent bool    // a request with a traceparent is sampled as its caller decided
	Ratio        float64 // share of the other requests that are sampled, 0 to 1; nginx rounds it to 0.0001
}

// spansConf is the file of runtime/ with the directives of Spans. The tag in it is secret.
const spansConf = "spans.conf"

// conf returns the text of spansConf.
func (s Spans) conf() string {
	share := "    *     \"\";\n"
	if percent := math.Round(s.Ratio*10_000) / 100; percent >= 100 {
		share = "    *     1;\n"
	} else if s.Ratio > 0 {
		share = fmt.Sprintf("    %.2f%% 1;\n", max(percent, 0.01)) + share
	}
	text := "split_clients $sluice_trace_id $sluice_sampled {\n" + share + "}\n"
	if s.FollowParent {
		text = "split_clients $sluice_request_id $sluice_drawn {\n" + share + "}\n" +
			"map $sluice_parent $sluice_sampled {\n    \"\" $sluice_drawn;\n    \"~[13579bdf]$\" 1;\n    default \"\";\n}\n"
	}
	return text + "include snippets/spans.conf;\n" +
		fmt.Sprintf("access_log syslog:server=%s,nohostname,tag=%s sluice_span if=$sluice_sampled;\n", s.Address, s.Tag)
}

// traceParent is runtime/traceparent.map: every request gets the traceparent of the edge. It needs two entries, because
// nginx does not compare the empty string with the regular expressions of a map.
const traceParent = "\"\"   $sluice_span_parent;\n\"~^\" $sluice_span_parent;\n"
