package nginx

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/internal/token"
	"sluice/test/edgetest"
)

// luaTracer replays traces through the modules of the Lua edge, in LuaJIT with a fake ngx: testdata/replay.lua.
type luaTracer struct {
	server    *luaServer
	mu        sync.Mutex
	tokens    []string
	positions map[string]int // buyer to the index of its token, from 1
}

func newLuaTracer(t *testing.T, f *variant) *luaTracer {
	t.Helper()
	return &luaTracer{server: f.lua(t), positions: map[string]int{}}
}

// sign returns the index of a token of the buyer among tokens.
func (r *luaTracer) sign(buyer string) string {
	if r.positions[buyer] == 0 {
		key, err := token.NewKey(secret)
		if err != nil {
			panic(err)
		}
		raw, err := key.Sign(buyer, 24*time.Hour)
		if err != nil {
			panic(err)
		}
		r.tokens = append(r.tokens, raw)
		r.positions[buyer] = len(r.tokens)
	}
	return fmt.Sprintf("{%d}", r.positions[buyer])
}

// code returns the Lua that replays the trace.
func (r *luaTracer) code(trace *edgetest.Trace) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines strings.Builder
	for i := range trace.Steps {
		q := &trace.Steps[i].Request
		header := func(name string) string {
			if _, ok := q.Headers[name]; !ok {
				return "-"
			}
			return q.Header(name, r.sign)
		}
		fmt.Fprintf(&lines, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", q.At, hex.EncodeToString(netip.MustParseAddr(q.Peer).AsSlice()),
			q.Method, q.Path, header("X-Forwarded-For"), strings.TrimSuffix(header("Authorization"), " "), header("token"))
	}
	return fmt.Sprintf("return require('replay').run(%s, { '%s' }, [==[\n%s]==])", luaString(trace.Policy()),
		strings.Join(r.tokens, "', '"), lines.String())
}

var statusOf = map[string]string{"": "200", "allow": "200", "deny": "429", "unauthorized": "401"}

func (r *luaTracer) replay(trace *edgetest.Trace) ([]edgetest.Decision, error) {
	out, err := r.server.try(r.code(trace))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", trace.Name, err)
	}
	var decisions []edgetest.Decision
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 8 {
			return nil, fmt.Errorf("%s: %q", trace.Name, line)
		}
		d := edgetest.Decision{Verdict: f[0], Rule: f[1], Shadow: f[5], Limit: f[6]}
		for place, n := range map[int]*int64{2: &d.Remaining, 3: &d.Retry, 4: &d.Delay} {
			if *n, err = strconv.ParseInt(f[place], 10, 64); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", trace.Name, line, err)
			}
		}
		if statusOf[d.Verdict] != f[7] {
			return nil, fmt.Errorf("%s: %s is answered with %s", trace.Name, d.Verdict, f[7])
		}
		decisions = append(decisions, d)
	}
	return decisions, nil
}

// The Go gateway replays the same traces, gateway/trace_test.go.
func TestLuaEdgeDecidesGoldenTraces(t *testing.T) {
	variants(t, decidesGoldenTraces)
}

func decidesGoldenTraces(t *testing.T, f *variant) {
	traces, err := edgetest.Golden("../gateway/testdata/traces")
	if err != nil {
		t.Fatal(err)
	}
	r := newLuaTracer(t, f)
	for _, trace := range traces {
		got, err := r.replay(trace)
		if err == nil {
			err = trace.Check(got)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// The corpus of the gateway's test, trace by trace.
func TestLuaEdgeDecidesCorpusAsModel(t *testing.T) {
	variants(t, decidesCorpusAsModel)
}

func decidesCorpusAsModel(t *testing.T, f *variant) {
	r := newLuaTracer(t, f)
	corpus := edgetest.Corpus(os.Getenv("SLUICE_CORPUS"), os.Getenv("SLUICE_CORPUS_SEED"))
	verdicts := map[string]int{}
	for trace := range corpus.Traces() {
		got, err := r.replay(trace)
		if err == nil {
			err = trace.Check(got)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got {
			verdicts[d.Verdict]++
		}
	}
	t.Logf("%d decisions from seed %d match the model: %v", corpus.Decisions, corpus.Seed, verdicts)
}

// sluice.limit.req returns the verdicts of the model for a single key, and its delays and excesses to nine digits.
func TestLimiterDecidesAsModel(t *testing.T) {
	server := requireLua(t)
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		rates := []string{"1", "3", "200", "1000", "20000", "0.5", "1/60", "7/60", "33.3", "100/3600", "333333.3", "1e6"}
		rate := rates[random.IntN(len(rates))]
		burst := []int64{0, 0, 1, 2, 10, 1000}[random.IntN(6)]
		perMicro, _ := new(big.Rat).SetString(strings.Split(rate, "/")[0])
		perMicro.Quo(perMicro, big.NewRat(1e6, 1))
		if _, under, found := strings.Cut(rate, "/"); found {
			n, _ := new(big.Rat).SetString(under)
			perMicro.Quo(perMicro, n)
		}
		inverse, _ := new(big.Rat).Inv(perMicro).Float64()
		share := int64(inverse)
		var b edgetest.Bucket
		var times, want strings.Builder
		now := int64(1e12)
		for range 300 {
			now += []int64{
				0, share, share + random.Int64N(2), random.Int64N(3*share + 2), random.Int64N(40*share + 1),
			}[random.IntN(5)]
			fmt.Fprintf(&times, "%d,", now)
			e, passes := b.Excess(perMicro, burst, now)
			if !passes {
				want.WriteString("rejected\n")
				continue
			}
			b.Store(e, now)
			delay := edgetest.Delay(e, perMicro)
			fmt.Fprintf(&want, "%s %s\n", delay.Quo(delay, big.NewRat(1e6, 1)).FloatString(9), e.FloatString(9))
		}
		got, err := server.try(fmt.Sprintf("return require('replay').alone(%s, %d, { %s })", rate, burst, times.String()))
		if err != nil {
			r.Fatal(err)
		}
		wants, gots := strings.Split(strings.TrimSpace(want.String()), "\n"), strings.Split(got, "\n")
		for i, w := range wants {
			if !sameNumbers(w, gots[i]) {
				r.Fatalf("rate %s burst %d, request %d: %q, want %q", rate, burst, i+1, gots[i], w)
			}
		}
	})
}

// sameNumbers allows a difference in the last digit, where a fraction is half-way between two.
func sameNumbers(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		p, errA := strconv.ParseFloat(x[i], 64)
		q, errB := strconv.ParseFloat(y[i], 64)
		if (errA != nil || errB != nil) && x[i] != y[i] || p-q > 1.5e-9 || q-p > 1.5e-9 {
			return false
		}
	}
	return true
}
