package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"sluice/gateway/policy"
)

func parsePolicy(t rapid.TB, source string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.lua", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// request is one line of a JSON log.
type request struct {
	at, took      int64 // ms
	client, buyer string
	method, path  string
	verdict       string
}

func (r request) line() string {
	return fmt.Sprintf(`{"time":%.3f,"client":%q,"buyer":%q,"method":%q,"path":%q,"status":200,"verdict":%q,`+
		`"seconds":%.3f,"upstream":"b"}`+"\n",
		float64(r.at+r.took)/1000, r.client, r.buyer, r.method, r.path, r.verdict, float64(r.took)/1000)
}

// logOf is the log that an edge writes of requests: as they end.
func logOf(requests []request) string {
	ended := slices.Clone(requests)
	slices.SortStableFunc(ended, func(a, b request) int { return int(a.at + a.took - b.at - b.took) })
	var b strings.Builder
	for _, r := range ended {
		b.WriteString(r.line())
	}
	return b.String()
}

func run(t rapid.TB, c Config, logs ...string) *Report {
	t.Helper()
	for i, log := range logs {
		c.Inputs = append(c.Inputs, Input{fmt.Sprint("log", i), strings.NewReader(log)})
	}
	c.NewName, c.OldName = "new.lua", "old.lua"
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const t0 = 1795255200000

// The decisions must match a model of nginx's limit_req with a bucket for each address and each buyer.
func TestReplayMatchesTheModel(t *testing.T) {
	p := parsePolicy(t, `return { rules = {
		{ name = "ip", key = "ip", rate = "2r/s", burst = 3 },
		{ name = "token", key = "token", rate = "1r/s", burst = 1, match = { method = "POST" } },
	} }`)
	rapid.Check(t, func(t *rapid.T) {
		var requests []request
		now := int64(t0)
		for range rapid.IntRange(1, 120).Draw(t, "requests") {
			now += rapid.SampledFrom([]int64{1, 50, 250, 1000}).Draw(t, "gap") // never equal: equal times are ordered by the log
			requests = append(
				requests,
				request{
					at:     now,
					took:   rapid.Int64Range(0, 3000).Draw(t, "took"),
					client: fmt.Sprint("10.0.0.", rapid.IntRange(1, 2).Draw(t, "client")),
					buyer: rapid.SampledFrom([]string{"ann", "bob"}).
						Draw(t, "buyer"),
					method:  rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method"),
					path:    "/x",
					verdict: "allow",
				},
			)
		}
		excess, last := map[string]float64{}, map[string]int64{}
		would := func(key string, rate, burst float64, at int64) (float64, bool) {
			e := 0.0
			if l, known := last[key]; known {
				e = max(0, excess[key]-rate*float64(at-l)/1000+1)
			}
			return e, e <= burst+1e-9
		}
		var byIP, byToken, admitted int64
		for _, r := range requests {
			ip, ok := would(r.client, 2, 3, r.at)
			if !ok {
				byIP++
				continue
			}
			if r.method == "POST" {
				e, ok := would(r.buyer, 1, 1, r.at)
				if !ok {
					byToken++
					continue
				}
				excess[r.buyer], last[r.buyer] = e, r.at
			}
			excess[r.client], last[r.client] = ip, r.at
			admitted++
		}
		// Two logs, as of two edges, in the wrong order.
		half := len(requests) / 2
		got := run(t, Config{New: p}, logOf(requests[half:]), logOf(requests[:half]))
		if got.Policy.Rules[0].Refused != byIP || got.Policy.Rules[1].Refused != byToken || got.Policy.Passed != admitted ||
			got.Policy.Refused != byIP+byToken {
			t.Fatalf("passed %d, refused %d and %d; want %d, %d and %d", got.Policy.Passed, got.Policy.Rules[0].Refused,
				got.Policy.Rules[1].Refused, admitted, byIP, byToken)
		}
		if got.Requests != int64(len(requests)) || got.From.UnixMilli() != requests[0].at || got.To.UnixMilli() != now ||
			got.Late != 0 {
			t.Fatalf("%d requests from %v to %v, %d late", got.Requests, got.From, got.To, got.Late)
		}
	})
}

func TestReplayComparesPolicies(t *testing.T) {
	strict := parsePolicy(t, `return { rules = { { name = "orders", key = "ip", rate = "1r/h", burst = 1, match = { `+
		`path = "/orders" } } } }`)
	loose := parsePolicy(t, `return { rules = { { name = "pages", key = "ip", rate = "1r/h", match = { path = `+
		`"/page" } } } }`)
	var requests []request
	for i, path := range []string{"/orders", "/page", "/orders", "/page", "/orders", "/page", "/orders", "/other"} {
		requests = append(requests,
			request{at: t0 + int64(i), client: "2001:db8::" + fmt.Sprint(i), method: "GET", path: path, verdict: "allow"})
	}
	got := run(t, Config{New: strict, Old: loose}, logOf(requests))
	want := Difference{
		BothPass:    4,
		OnlyNew:     2,
		OnlyOld:     2,
		OnlyNewRule: map[string]int64{"orders": 2},
		OnlyOldRule: map[string]int64{"pages": 2},
		OnlyNewTop: []TopKey{
			{"ip", "2001:db8::/64", 8, 2, 0.25, "orders"},
		},
		OnlyOldTop: []TopKey{{"ip", "2001:db8::/64", 8, 2, 0.25, "pages"}},
	}
	if !reflect.DeepEqual(*got.Difference, want) {
		t.Errorf("the difference is\n%+v, want\n%+v", *got.Difference, want)
	}
	var text bytes.Buffer
	got.WriteText(&text)
	for _, line := range []string{
		"new.lua rejects 2 of 8 requests (25%)", "rejected only by new.lua  2  orders 2",
		"ip 2001:db8::/64          2         8         25%    pages",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the text does not contain %q:\n%s", line, text.String())
		}
	}
}

func TestTextOfOneLine(t *testing.T) {
	var text bytes.Buffer
	(&Report{Lines: 1, BadLines: 1, Requests: 1, OutOfOrder: 1}).WriteText(&text)
	for _, want := range []string{
		"1 line, 1 request\n", "1 line out of order, 0 of them", "1 invalid line:\n", " rejects 0 of 1 request (",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

func TestNotesOfOneLine(t *testing.T) {
	p := parsePolicy(t, `return { repeat_refusals = false, rules = { { name = "ip", key = "ip", rate = "1r/s" } } }`)
	of := &Report{Lines: 1, WholeSeconds: 1, Late: 1, Cached: 1}
	notes := (&replayer{}).notes(Config{New: p, Window: time.Second}, of)
	for i, want := range []string{
		"1 request from a log with a resolution of seconds", "1 line more than 1s out of order", "1 refusal from the cache",
	} {
		if len(notes) != 3 || !strings.HasPrefix(notes[i], want) {
			t.Fatalf("got notes %q, want one that begins with %q", notes, want)
		}
	}
	_, err := Run(t.Context(), Config{New: p, Inputs: []Input{{"x.log", strings.NewReader("no\n")}}})
	if err == nil || !strings.Contains(err.Error(), "none of 1 line is valid") {
		t.Errorf("a log of one invalid line: %v", err)
	}
}

// The gateway checks the rules of the fleet after those of the edge.
func TestReplayChecksTheFleetLast(t *testing.T) {
	p := parsePolicy(t, `return { rules = {
		{ name = "fleet", key = "ip", rate = "1r/h", burst = 1, scope = "fleet" },
		{ name = "token", key = "token", rate = "1r/h" },
	} }`)
	var requests []request
	for i, buyer := range []string{"ann", "bob", "ann", "eve"} {
		requests = append(requests, request{at: t0 + int64(i), client: "::1", buyer: buyer, path: "/", verdict: "allow"})
	}
	refused := map[string]int64{}
	for _, r := range run(t, Config{New: p}, logOf(requests)).Policy.Rules {
		refused[r.Name] = r.Refused
	}
	if refused["fleet"] != 1 || refused["token"] != 1 {
		t.Errorf("refused by %v, want one by each rule", refused)
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	var s perSecond
	for second := range int64(10) {
		s.add((second+1)*1000, second)
	}
	s.end()
	if got, want := s.percentiles(), (Percentiles{P50: 4, P90: 8, P99: 9, Max: 9}); got != want {
		t.Errorf("the percentiles of 0 to 9 are %+v, want %+v", got, want)
	}
}

func TestReplayOfIncompleteInformation(t *testing.T) {
	p := parsePolicy(t, `return { rules = {
		{ name = "ip", key = "ip", rate = "1r/h", burst = 100 },
		{ name = "trial", key = "ip", rate = "1r/h", mode = "shadow" },
		{ name = "token", key = "token", rate = "1r/h", match = { path = "/orders" } },
		{ name = "slow", key = "ip", rate = "1r/s", burst = 9, delay = true, match = { path = "/slow" } },
	} }`)
	log := logOf([]request{
		{at: t0, client: "::1", buyer: "ann", path: "/orders", verdict: "allow"},
		{at: t0 + 1, client: "::1", buyer: "ann", path: "/orders", verdict: "deny"}, // refused again
		{at: t0 + 2, client: "::1", path: "/orders", verdict: "unauthorized"},       // 401 again
		{
			at:      t0 + 3,
			client:  "::1",
			path:    "/orders",
			verdict: "deny",
		}, // refused by address, so that the buyer is unknown
		{at: t0 + 4, client: "::1", path: "/orders", verdict: "sold_out"},
		{at: t0 + 5, client: "::1", path: "/slow", verdict: "allow"},
		{at: t0 + 6, client: "::1", path: "/slow", verdict: "allow"},
		{at: t0 + 7, client: "::1", path: "/", verdict: "error"}, // 503: a bucket could not be used
	}) + `{"time":1795255200,"client":"::1","method":"GET","path":"","status":400,"verdict":""}` + "\n"
	got := run(t, Config{New: p}, log)
	if got.Lines != 9 || got.Requests != 7 || got.NotEvaluated != 1 || got.Cached != 1 || got.RefusedBefore != 2 ||
		got.Unauthorized != 1 || got.Unavailable != 1 {
		t.Errorf("counted %+v", got)
	}
	if s := got.Policy; s.Passed != 5 || s.Refused != 1 || s.Unauthorized != 1 {
		t.Errorf("passed %d, refused %d, unauthorized %d; want 5, 1 and 1", s.Passed, s.Refused, s.Unauthorized)
	}
	for _, want := range []RuleCounts{
		{Name: "ip", Key: "ip", Mode: "enforce", Covered: 7, Passed: 6},
		{Name: "trial", Key: "ip", Mode: "shadow", Covered: 7, Passed: 1, ShadowRefused: 5},
		{Name: "token", Key: "token", Mode: "enforce", Covered: 4, Passed: 1, Refused: 1, NoBuyer: 1},
		{Name: "slow", Key: "ip", Mode: "enforce", Covered: 2, Passed: 2, Delayed: 1, LongestDelay: 0.999},
	} {
		i := slices.IndexFunc(got.Policy.Rules, func(r RuleCounts) bool { return r.Name == want.Name })
		have := got.Policy.Rules[i]
		if math.Abs(have.LongestDelay-want.LongestDelay) < 1e-6 {
			have.LongestDelay = want.LongestDelay
		}
		if have != want {
			t.Errorf("%s:\n%+v, want\n%+v", want.Name, have, want)
		}
	}
	if len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "1 request with an unknown buyer: ") {
		t.Errorf("notes: %q", got.Notes)
	}
}

// The resolution of seconds must not cause bursts. The format contains no buyers.
func TestReplayOfACombinedLog(t *testing.T) {
	p := parsePolicy(t, `return { rules = { { name = "ip", key = "ip", rate = "10r/s", burst = 0 }, { name = "token",`+
		` key = "token", rate = "1r/h" } } }`)
	var log strings.Builder
	for second := range 3 {
		for range 10 {
			fmt.Fprintf(&log, "192.0.2.1 - - [21/Nov/2026:10:00:%02d +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n", second)
		}
	}
	got := run(t, Config{New: p}, log.String())
	if got.Policy.Refused != 0 || got.WholeSeconds != 30 || got.Policy.Rules[1].NoBuyer != 30 || len(got.Notes) != 2 {
		t.Errorf("refused %d, %d in whole seconds, notes %q", got.Policy.Refused, got.WholeSeconds, got.Notes)
	}
	if got.PerSecond != (Percentiles{10, 10, 10, 10}) {
		t.Errorf("requests a second: %+v", got.PerSecond)
	}
}

// In a log of both formats, the distribution over a second does not displace the lines with an exact time.
func TestReplayOfAMixedLog(t *testing.T) {
	p := parsePolicy(t, `return { rules = { { name = "ip", key = "ip", rate = "20r/s", burst = 0 } } }`)
	var log strings.Builder
	for i := range int64(30) {
		second := time.UnixMilli(t0 + i/10*1000).UTC().Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&log, "::1 - - [%s] \"GET / HTTP/1.1\" 200 5\n", second)
		log.WriteString(request{at: t0 + i*100 + 50, client: "::1", method: "GET", path: "/", verdict: "allow"}.line())
	}
	got := run(t, Config{New: p}, log.String())
	if got.Policy.Passed != 60 || got.WholeSeconds != 30 {
		t.Errorf("passed %d of 60, %d in whole seconds", got.Policy.Passed, got.WholeSeconds)
	}
}

func TestReplaySkipsInvalidLines(t *testing.T) {
	p := parsePolicy(t, `return { rules = {} }`)
	good := request{at: t0, client: "::1", path: "/"}.line()
	long := strings.Repeat("x", 2*maxLine) + strings.Repeat("y", maxLine)
	log := "\n" + good + "nonsense\n\x1b[31m{\n" + good + long + "\n" + good + strings.Repeat("bad\n", 10) +
		strings.TrimSuffix(good, "\n")
	got := run(t, Config{New: p}, log)
	if got.Lines != 17 || got.BadLines != 13 || got.Requests != 4 || len(got.Bad) != maxBadShown {
		t.Fatalf("%d lines, %d bad, %d requests, %d shown", got.Lines, got.BadLines, got.Requests, len(got.Bad))
	}
	for i, want := range []Bad{
		{"log0", 3, errFormat.Error(), "nonsense"}, {"log0", 4, errFormat.Error(), "?[31m{"},
		{"log0", 6, errLong.Error(), strings.Repeat("x", shownText) + "..."},
	} {
		if b := got.Bad[i]; b.File != want.File || b.Line != want.Line || b.Why != want.Why || b.Text != want.Text {
			t.Errorf("bad line %d is %+v, want %+v", i, b, want)
		}
	}
	_, err := Run(t.Context(), Config{New: p, Inputs: []Input{{"x.log", strings.NewReader("\nno\nnone\n")}}})
	if want := "not an access log: none of 2 lines is valid; x.log:2: " + errFormat.Error(); !errors.Is(err, ErrNothing) ||
		err.Error() != want {
		t.Errorf("a log of invalid lines: %v, want %s", err, want)
	}
	if got := run(t, Config{New: p}, ""); got.Lines != 0 || len(got.Notes) != 1 {
		t.Errorf("an empty log: %+v", got)
	}
}

func TestReplayReadsGzipAndTruncatedLogs(t *testing.T) {
	p := parsePolicy(t, `return { rules = {} }`)
	var requests []request
	for i := range int64(5000) {
		requests = append(requests, request{at: t0 + i*i%7919, client: "::1", path: "/"})
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, logOf(requests))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if got := run(t, Config{New: p}, zipped.String()); got.Requests != 5000 || len(got.Notes) != 0 {
		t.Errorf("gzipped: %d requests, notes %q", got.Requests, got.Notes)
	}
	got := run(t, Config{New: p}, zipped.String()[:zipped.Len()/2])
	if got.Requests < 1000 || got.Requests >= 5000 || len(got.Notes) != 1 ||
		!strings.HasPrefix(got.Notes[0], "log0 is truncated (unexpected EOF)") {
		t.Errorf("half of it: %d requests, notes %q", got.Requests, got.Notes)
	}
	for name, log := range map[string]string{
		"only the magic number of gzip": "\x1f\x8babcabcabcabc", "only the header": zipped.String()[:10],
	} {
		if report, err := Run(t.Context(),
			Config{New: p, Inputs: []Input{{"x.gz", strings.NewReader(log)}}}); !errors.Is(err, ErrNothing) ||
			!strings.Contains(err.Error(), "x.gz") {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	one := iotest.OneByteReader(strings.NewReader(logOf(requests)))
	if r, err := Run(t.Context(), Config{New: p, Inputs: []Input{{"slow", one}}}); err != nil || r.Requests != 5000 {
		t.Errorf("byte by byte: %v", err)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	line := request{at: t0, client: "::1", path: "/"}.line()
	endless := readerFunc(func(b []byte) (int, error) { return copy(b, line), nil })
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Config{New: parsePolicy(t, `return { rules = {} }`), Inputs: []Input{{"endless", endless}}})
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run does not return")
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestReplayReportsMissingBuckets(t *testing.T) {
	p := parsePolicy(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`)
	var requests []request
	for i := range int64(2000) {
		requests = append(requests, request{at: t0 + i, client: fmt.Sprintf("10.0.%d.%d", i/250, i%250), path: "/"})
	}
	got := run(t, Config{New: p, Buckets: 1000, Keys: 500}, logOf(requests))
	if s := got.Policy; s.NoBucket < 900 || s.Refused != 0 || s.Passed+s.NoBucket != 2000 ||
		s.Rules[0].NoBucket != s.NoBucket ||
		len(got.Notes) != 2 {
		t.Errorf("passed %d, refused %d, no bucket for %d, notes %q", s.Passed, s.Refused, s.NoBucket, got.Notes)
	}
}

// The order of keys must be deterministic, so that reports can be compared.
func TestReplayIsDeterministic(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "lua", "policy.lua"))
	if err != nil {
		t.Fatal(err)
	}
	p := parsePolicy(t, string(source))
	var requests []request
	for i := range int64(3000) {
		requests = append(
			requests,
			request{
				at:     t0 + i,
				took:   i * 37 % 900,
				client: fmt.Sprint("10.0.0.", i%20),
				buyer:  fmt.Sprint("buyer", i%7),
				method: "POST",
				path:   "/v1/sales/x/orders",
			},
		)
	}
	first := run(t, Config{New: p, Old: p}, logOf(requests))
	if first.Policy.Refused == 0 || first.Difference.OnlyNew != 0 || first.Difference.OnlyOld != 0 ||
		first.Difference.BothRefuse != first.Policy.Refused {
		t.Errorf("a policy compared with itself: %+v", first.Difference)
	}
	for range 3 {
		if again := run(t, Config{New: p, Old: p}, logOf(requests)); !reflect.DeepEqual(again, first) {
			t.Fatalf("a second run reports\n%+v, the first\n%+v", again, first)
		}
	}
}

// For every input, each line is counted once, and each request has one result.
func FuzzRun(f *testing.F) {
	good := request{at: t0, took: 9, client: "::1", buyer: "ann", path: "/", verdict: "allow"}.line()
	f.Add([]byte(good + "::1 - - [21/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n" + good[:40]))
	f.Add([]byte("\x1f\x8b\b\x00"))
	p := parsePolicy(f, `return { rules = {
		{ name = "ip", key = "ip", rate = "1r/s", burst = 1, delay = true },
		{ name = "token", key = "token", rate = "1r/s", match = { method = "GET" } },
		{ name = "fleet", key = "token", rate = "1r/s", burst = 1, scope = "fleet", mode = "shadow" },
	} }`)
	f.Fuzz(func(t *testing.T, log []byte) {
		r, err := Run(t.Context(), Config{New: p, Old: p, Buckets: 2, Keys: 2, Inputs: []Input{{"x", bytes.NewReader(log)}}})
		if err != nil {
			return
		}
		s := r.Policy
		if r.Lines != r.BadLines+r.NotEvaluated+r.Cached+r.Requests ||
			r.Requests != s.Passed+s.Refused+s.NoBucket+s.Unauthorized ||
			r.Requests != r.Difference.BothPass+r.Difference.BothRefuse {
			t.Errorf("%q: %+v", log, r)
		}
	})
}
