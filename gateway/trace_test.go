package gateway

import (
	"bufio"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/test/edgetest"
)

// tracer passes the requests of a trace to Gateway.admit, with a manual clock and without a network.
type tracer struct {
	*Gateway
	t      testing.TB
	now    time.Duration
	tokens map[string]string
}

func newTracer(t testing.TB) *tracer {
	t.Helper()
	r := &tracer{t: t, tokens: map[string]string{}}
	var err error
	r.Gateway, err = New(Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(open),
		Now: func() time.Duration { return r.now }, Random: func(int) int { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replay returns the decision on every request of the trace, beginning with empty buckets.
func (r *tracer) replay(trace *edgetest.Trace) []edgetest.Decision {
	r.t.Helper()
	p, err := policy.Parse("policy.lua", []byte(trace.Policy()))
	if err != nil {
		r.t.Fatalf("%s: %v", trace.Name, err)
	}
	s := newSnapshot(p, nil, r.metrics)
	r.table = limit.NewTable(0) // the time of the previous trace was different
	decisions := make([]edgetest.Decision, len(trace.Steps))
	for i := range trace.Steps {
		decisions[i] = r.decide(s, &trace.Steps[i].Request)
	}
	return decisions
}

func (r *tracer) decide(s *snapshot, q *edgetest.Request) (d edgetest.Decision) {
	r.now = time.Duration(q.At) * time.Microsecond
	ctx := &fasthttp.RequestCtx{}
	head := q.Method + " " + q.Path + " HTTP/1.1\r\nHost: x\r\n"
	for name := range q.Headers {
		head += name + ": " + q.Header(name, r.sign) + "\r\n"
	}
	if err := ctx.Request.Header.Read(bufio.NewReader(strings.NewReader(head + "\r\n"))); err != nil {
		r.t.Fatal(err)
	}
	x := r.exchanges.Get().(*exchange)
	defer func() { x.reset(); r.exchanges.Put(x) }()
	var ok bool
	if x.path, ok = decodePath(x.path, splitTarget(ctx.Request.Header.RequestURI())); !ok || !x.ReadHeaders(ctx) {
		r.t.Fatalf("the gateway rejects %q", head)
	}
	x.Client = forwardedFor(s.trusted, netip.MustParseAddr(q.Peer), x.Headers.Forwarded)
	if want := netip.MustParseAddr(q.Client); x.Client != want {
		r.t.Fatalf("%+v: client %v, want %v", *q, x.Client, want)
	}
	wait, ok := r.admit(ctx, s, x)
	d = edgetest.Decision{Verdict: x.verdict, Shadow: x.shadow, Delay: wait.Microseconds(), Limit: string(x.quota)}
	if x.rule != nil {
		d.Rule, d.Remaining = x.rule.Name, int64(x.remaining)
	}
	if !ok {
		d.Limit = string(ctx.Response.Header.Peek("RateLimit"))
		if x.verdict == "deny" {
			d.Retry, _ = strconv.ParseInt(string(ctx.Response.Header.Peek("Retry-After")), 10, 64)
		}
	}
	return d
}

func (r *tracer) sign(buyer string) string {
	if r.tokens[buyer] == "" {
		r.tokens[buyer] = sign(r.t, buyer, 24*time.Hour)
	}
	return r.tokens[buyer]
}

// The nginx edge replays the same traces, nginx/trace_test.go.
func TestGoldenTraces(t *testing.T) {
	traces, err := edgetest.Golden("testdata/traces")
	if err != nil {
		t.Fatal(err)
	}
	r := newTracer(t)
	for _, trace := range traces {
		if err := trace.Check(r.replay(trace)); err != nil {
			t.Error(err)
		}
	}
}

// Generated traces, compared with the exact formula. SLUICE_CORPUS is the number of decisions and SLUICE_CORPUS_SEED
// the first seed. make edge-corpus tests a million decisions with the same traces in both edges.
func TestCorpusMatchesTheModel(t *testing.T) {
	r := newTracer(t)
	corpus := edgetest.Corpus(os.Getenv("SLUICE_CORPUS"), os.Getenv("SLUICE_CORPUS_SEED"))
	verdicts := map[string]int{}
	for trace := range corpus.Traces() {
		got := r.replay(trace)
		if err := trace.Check(got); err != nil {
			t.Fatal(err)
		}
		for _, d := range got {
			verdicts[d.Verdict]++
		}
	}
	t.Logf("%d decisions from seed %d match the model: %v", corpus.Decisions, corpus.Seed, verdicts)
	if verdicts["allow"] < corpus.Decisions/20 || verdicts["deny"] < corpus.Decisions/20 ||
		verdicts["unauthorized"] == 0 ||
		verdicts[""] == 0 {
		t.Errorf("the corpus does not cover all verdicts: %v", verdicts)
	}
}
