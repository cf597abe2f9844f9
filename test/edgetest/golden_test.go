package edgetest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sluice/test/edgetest"
)

const folder = "../../gateway/testdata/traces"

var update = flag.Bool("update", false, "rewrite the golden traces from the scenarios and the model")

const (
	start = int64(1_000_000_000_000) // us
	us    = int64(1)
	ms    = 1000 * us
	sec   = 1000 * ms
	minu  = 60 * sec
	hour  = 60 * minu
)

// scenario builds a trace: requests of one kind, at instants after the start.
type scenario struct{ edgetest.Trace }

func record(name, about string, rules ...edgetest.Rule) *scenario {
	return &scenario{edgetest.Trace{Name: name, About: about, Rules: rules}}
}

func (s *scenario) at(r edgetest.Request, after ...int64) *scenario {
	for _, d := range after {
		r.At = start + d
		s.Steps = append(s.Steps, edgetest.Step{Request: r})
	}
	return s
}

func get(client, path string) edgetest.Request {
	return edgetest.Request{Peer: client, Client: client, Method: "GET", Path: path}
}

func buy(client, buyer string) edgetest.Request {
	r := edgetest.Request{Peer: client, Client: client, Buyer: buyer, Method: "POST", Path: "/v1/sales/42/orders"}
	if buyer != "" {
		r.Headers = map[string]string{"Authorization": "Bearer {token:" + buyer + "}"}
	}
	return r
}

func every(gap int64, n int) (at []int64) {
	for i := range n {
		at = append(at, int64(i)*gap)
	}
	return at
}

func scenarios() []*scenario {
	const a, b = "192.0.2.1", "192.0.2.2"
	ip := func(name, rate string, burst int64) edgetest.Rule {
		return edgetest.Rule{Name: name, Key: "ip", Rate: rate, Burst: burst}
	}
	orders := edgetest.Rule{
		Name:   "token",
		Key:    "token",
		Rate:   "2r/s",
		Burst:  1,
		Method: "POST",
		Path:   "/v1/sales/*/orders",
	}
	shadow := ip("strict", "1r/s", 0)
	shadow.Shadow = true
	slow := ip("slow", "10r/s", 3)
	slow.Delay = true
	proxied := func(forwarded, client string) edgetest.Request {
		return edgetest.Request{
			Peer:    "10.0.0.1",
			Client:  client,
			Method:  "GET",
			Path:    "/",
			Headers: map[string]string{"X-Forwarded-For": forwarded},
		}
	}
	bad := buy(a, "")
	bad.Headers = map[string]string{"Authorization": "Bearer nonsense"}
	other := buy(a, "ann")
	other.Headers = map[string]string{"token": "{token:ann}"}
	forged := get(a, "/")
	forged.Headers = map[string]string{"X-Forwarded-For": "203.0.113.7"}
	spelled := func(path string) edgetest.Request { r := buy(a, ""); r.Path = path; return r }

	trusting := record("trusted_proxy",
		"Clients behind a trusted proxy are counted separately; forwarded addresses from other peers are ignored.",
		ip("ip", "1r/s", 0))
	trusting.Trusted = []string{"10.0.0.0/8"}
	trusting.at(proxied("198.51.100.1", "198.51.100.1"), 0, 1*ms).at(proxied("198.51.100.2", "198.51.100.2"), 2*ms).
		at(proxied("198.51.100.2, 198.51.100.1", "198.51.100.1"), 3*ms).
		at(proxied("198.51.100.2, 10.9.9.9", "198.51.100.2"), 4*ms).
		at(proxied("nonsense", "10.0.0.1"), 5*ms).
		at(forged, 6*ms, 7*ms).at(proxied("::ffff:198.51.100.1", "198.51.100.1"), 8*ms, 1*sec)

	return []*scenario{
		record("burst_then_rate",
			"burst + 1 requests pass immediately, then one per interval of the rate; a rejection consumes nothing.",
			ip("ip", "10r/s", 2)).
			at(get(a, "/"), make([]int64, 5)...).
			at(get(a, "/"), 99_999, 100*ms, 100_001, 200*ms, 200*ms, 350*ms, 2*sec, 2*sec, 2*sec, 2*sec),
		record("twenty_thousand_a_second", "An interval of 50 us and no burst: of requests every 10 us, every fifth passes.",
			ip("hot", "20000r/s", 0)).
			at(get(a, "/"), every(10*us, 60)...).
			at(get(a, "/"), 1*ms, 1*ms+49, 1*ms+50, 1*ms+100),
		record("one_a_minute", "A slow rate is as exact as a fast one.", ip("ip", "1r/m", 1)).
			at(get(a, "/"), 0, 1*us, 2*us, 59*sec, minu-1, minu, minu+1, 2*minu, 2*minu+1, 10*minu, 10*minu+1, 10*minu+2),
		record("thirds_of_a_microsecond",
			"An interval with a fraction of a microsecond: nothing is rounded, over any number of requests.",
			ip("ip", "333333.33r/s", 0)).
			at(get(a, "/"), every(1*us, 80)...).
			at(get(a, "/"), every(3*us, 40)[30:]...),
		record("idle_key", "A bucket without requests becomes empty, and then equals a new one.", ip("ip", "1r/s", 2)).
			at(get(a, "/"), 0, 0, 0, 0).at(get(b, "/"), 1*sec).at(get(a, "/"), hour, hour, hour, hour).at(get(a, "/"), 25*hour),
		record("keys_apart", "The quota that one client has used does not affect another; an IPv6 client is its /64.",
			ip("ip", "1r/h", 0)).
			at(get(a, "/"), 0, 1).
			at(get(b, "/"), 2, 3).
			at(get("2001:db8:1:2::1", "/"), 4).
			at(get("2001:db8:1:2:ffff::9", "/"), 5).
			at(get("2001:db8:1:3::1", "/"), 6),
		record(
			"ipv6_prefix",
			"A rule counts an IPv6 client by the network of its prefix; other rules and IPv4 clients are not affected.",
			edgetest.Rule{Name: "site", Key: "ip", Rate: "1r/h", Burst: 2, IPv6Prefix: 48},
			edgetest.Rule{Name: "home", Key: "ip", Rate: "1r/h", Burst: 1, IPv6Prefix: 56},
			ip("network", "1r/h", 0),
		).
			at(get("2001:db8:1:2::1", "/"), 0).
			at(get("2001:db8:1:2::2", "/"), 1).
			at(get("2001:db8:1:ff::1", "/"), 2).
			at(get("2001:db8:1:3::1", "/"), 3).
			at(get("2001:db8:1:102::1", "/"), 4).
			at(get("2001:db8:1:202::1", "/"), 5).
			at(get("2001:db8:2:2::1", "/"), 6).
			at(get(a, "/"), 7, 8).
			at(get(b, "/"), 9).
			at(get("32.1.13.184", "/"), 10),
		record("refusal_takes_nothing",
			"Several rules are one decision: if one refuses, the others count nothing, and the refusal names that rule.",
			ip("wide", "1r/s", 5), ip("narrow", "1r/s", 1),
			edgetest.Rule{Name: "get", Key: "ip", Rate: "1r/s", Burst: 3, Method: "GET"}).
			at(get(a, "/"), make([]int64, 6)...).
			at(spelled("/"), 1*ms).
			at(get(a, "/"), 1*sec, 1*sec, 2*sec, 3*sec, 3*sec),
		record(
			"buyers",
			"Per-token limits count verified subjects, independent of the token and the header; an invalid token consumes only its "+
				"address's quota.",
			ip("ip", "1r/s", 5),
			orders,
		).
			at(buy(a, "ann"), 0, 1*ms).
			at(other, 2*ms).
			at(buy(b, "ann"), 3*ms).
			at(buy(b, "bob"), 4*ms).
			at(bad, 5*ms, 6*ms).
			at(buy(a, ""), 7*ms, 8*ms, 9*ms).
			at(get(a, "/v1/sales"), 10*ms).
			at(buy(b, "bob"), 11*ms, 12*ms).
			at(buy(b, "ann"), 503*ms),
		record("shadow_beside_live",
			"A shadow rule has its own buckets, rejects no request and consumes nothing when it is exceeded.",
			ip("live", "10r/s", 1), shadow).
			at(get(a, "/"), 0, 0, 0, 100*ms, 900*ms, 1*sec, 1*sec, 2*sec),
		record("shadow_alone", "A shadow rule does not require a token.",
			edgetest.Rule{Name: "buyer", Key: "token", Rate: "1r/s", Shadow: true}).
			at(buy(a, "ann"), 0, 1).
			at(buy(a, ""), 2).
			at(bad, 3).
			at(buy(a, "ann"), 1*sec),
		record(
			"delay",
			"With delay a burst is slowed to the rate: each request waits for one interval longer than the one before.",
			slow,
		).
			at(get(a, "/"), make([]int64, 5)...).
			at(get(a, "/"), 50*ms, 100*ms, 250*ms, 1*sec),
		record("spelling", "Other spellings of a path do not bypass its rule.",
			edgetest.Rule{Name: "orders", Key: "ip", Rate: "1r/s", Method: "POST", Path: "/v1/sales/*/orders"}).
			at(spelled("/v1/sales/42/orders"), 0, 1).
			at(spelled("/v1/sales/42/orders/"), 2).at(spelled("/V1/Sales/7/ORDERS"), 3).at(spelled("/v1/sales/42"), 4).
			at(spelled("/v1/sales/42/orders/1"), 5).at(get(a, "/v1/sales/42/orders"), 6),
		record("one_instant", "Without time passing nothing is refilled, and a request one microsecond early is refused.",
			ip("ip", "10r/s", 0)).
			at(get(a, "/"), make([]int64, 3)...).
			at(get(a, "/"), 99_999, 100*ms, 100*ms, 199_999, 200*ms),
		trusting,
	}
}

// write returns the trace in the form of its file: a line for each step.
func (s *scenario) write() []byte {
	steps := s.Steps
	head := s.Trace
	head.Steps = nil
	text, err := json.MarshalIndent(head, "", "  ")
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(text, []byte("null\n}")))
	b.WriteString("[\n")
	for i, step := range steps {
		line, err := json.Marshal(step)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "    %s%s\n", line, map[bool]string{true: ","}[i < len(steps)-1])
	}
	b.WriteString("  ]\n}\n")
	return b.Bytes()
}

// Both edges replay the files. They change only on purpose: go test ./test/edgetest -update
func TestGoldenTracesMatchTheModel(t *testing.T) {
	all := scenarios()
	for _, s := range all {
		if err := s.Decide(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, s.Name+".json")
		if *update {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, s.write(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if was, err := os.ReadFile(path); err != nil || !bytes.Equal(was, s.write()) {
			t.Errorf("%s differs from the model (%v): if that is intended, run go test ./test/edgetest -update", path, err)
		}
	}
	traces, err := edgetest.Golden(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(traces) != len(all) {
		t.Errorf("%d files for %d scenarios", len(traces), len(all))
	}
}

// The model defines all other expectations, so its own decisions are compared with values that were computed by hand.
func TestModelAgainstHandComputedValues(t *testing.T) {
	trace := record(
		"by hand",
		"",
		edgetest.Rule{Name: "ip", Key: "ip", Rate: "2r/s", Burst: 1, Delay: true},
	).at(get("192.0.2.1", "/"), 0, 0, 0, 250*ms, 500*ms, 500*ms, 3*sec).
		Trace
	if err := trace.Decide(); err != nil {
		t.Fatal(err)
	}
	allow := func(left, delay int64) edgetest.Decision {
		return edgetest.Decision{
			Verdict:   "allow",
			Rule:      "ip",
			Remaining: left,
			Delay:     delay,
			Limit:     fmt.Sprintf(`"ip";r=%d;t=1`, left),
		}
	}
	deny := edgetest.Decision{Verdict: "deny", Rule: "ip", Retry: 1, Limit: `"ip";r=0;t=1`}
	for i, want := range []edgetest.Decision{
		allow(1, 0), allow(0, 500*ms), deny, deny, allow(0, 500*ms), deny, allow(1, 0),
	} {
		if got := trace.Steps[i].Want; got != want {
			t.Errorf("request %d: %+v, want %+v", i+1, got, want)
		}
	}
}

func TestSameSeedGivesTheSameTrace(t *testing.T) {
	a, b, c := edgetest.Generate(7, 50), edgetest.Generate(7, 50), edgetest.Generate(8, 50)
	if err := a.Check(decisions(b)); err != nil || a.Policy() != b.Policy() {
		t.Errorf("two traces of one seed differ: %v", err)
	}
	if a.Policy() == c.Policy() {
		t.Error("two seeds gave the same policy")
	}
	d := decisions(b)
	d[49].Remaining++
	if a.Check(d) == nil {
		t.Error("a wrong decision was not reported")
	}
}

func decisions(t *edgetest.Trace) (d []edgetest.Decision) {
	for _, s := range t.Steps {
		d = append(d, s.Want)
	}
	return d
}
