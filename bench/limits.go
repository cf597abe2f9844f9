package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sluice/internal/problem"
	"sluice/test/testenv"
)

// limits measures the work of the edge itself in nginx, without a backend. It compares two rules with an empty access
// phase; a refusal by a limit with a refusal that is written in the configuration, both with and without a log, and
// with one that has no request id; and a sold-out sale with a constant.
func limits(s *stage, cfg settings) contest {
	e := newEdges(s, cfg)
	const (
		rules, empty    = "two rules", "empty access phase"
		fresh           = "two rules, every token a new one"
		rejected, plain = "refused by a limit", "return 429"
		unnumbered      = "return 429, without a request id"
		noted, line     = "refused by a limit, logged", "return 429, logged"
		gone, constant  = "sold out, from memory", "content_by_lua with a constant"
	)
	return contest{
		name: "limits", unit: "answers",
		contestants: []contestant{
			{rules, e.measure(e.conf.Rules, e.buyers, http.StatusOK)},
			{empty, e.measure(e.conf.Empty, e.buyers, http.StatusOK)},
			{fresh, e.newBuyers(e.conf.Rules)},
			{rejected, e.measure(e.conf.Edge, e.flood, http.StatusTooManyRequests)},
			{plain, e.measure(e.conf.Static, e.flood, http.StatusTooManyRequests)},
			{unnumbered, e.measure(e.conf.Unnumbered, e.flood, http.StatusTooManyRequests)},
			{noted, e.measure(e.conf.EdgeLogged, e.flood, http.StatusTooManyRequests)},
			{line, e.measure(e.conf.StaticLogged, e.flood, http.StatusTooManyRequests)},
			{gone, e.measure(e.conf.Edge, e.buyers, http.StatusConflict)},
			{constant, e.measure(e.conf.Constant, e.buyers, http.StatusConflict)},
		},
		ratios: []ratio{
			{"edge, two rules", rules, empty, 0.75, 0.85},
			{"edge, two rules, fresh tokens", fresh, empty, 0, 0},
			{"edge, refused by a limit", rejected, plain, 0.9, 0},
			{"edge, refused by a limit, against no request id", rejected, unnumbered, 0, 0},
			{"edge, refused by a limit, both logged", noted, line, 0.9, 0},
			{"edge, sold out", gone, constant, 0.9, 0.95},
		},
	}
}

// limitsPolicy has two rules that no request violates, and one that every request violates: at one request per hour
// the load measures rejections. (At one per minute, hundreds of the 2,000 addresses would be admitted in each round.)
// The listener of the two rules does not determine the client, so all of its requests share one address: the rates are
// the highest that a policy may have.
const limitsPolicy = `return {
  trusted_proxies = { "127.0.0.0/8" },
  rules = {
    { name = "never", key = "ip", rate = "1r/h", burst = 0, match = { path = "/v1/sales/flood/orders" } },
    { name = "ip", key = "ip", rate = "1000000r/s", burst = 1000000, match = { path = "/v1/sales/*/orders" } },
    { name = "token", key = "token", rate = "1000000r/s", burst = 1000000, match = { method = "POST", path = "/v1/sales/*/orders" } },
  },
}
`

//go:embed limits.conf
var limitsConf string

// edges is the nginx that has all contestants.
type edges struct {
	cfg           settings
	wrk           *wrk
	buyers, flood string // files of requests
	next          int    // the first buyer whose token is new
	nginx         *meter
	conf          limitsConfig
}

type limitsConfig struct {
	Modules                              []string
	Root, Backend                        string
	Empty, Rules, Static, Edge, Constant string // addresses
	Unnumbered, StaticLogged, EdgeLogged string
	Limited, Gone                        string // bodies
}

// known is the number of buyers that send repeated requests: more than a burst, fewer than the tokens that an edge
// caches.
const known = 2000

func newEdges(s *stage, cfg settings) *edges {
	e := &edges{cfg: cfg, wrk: s.wrk(), next: known}
	limited := problem.New(problem.RateLimited, `Too many requests: the policy "never" allows no more right now.`)
	limited.ViolatedPolicies = []string{"never"}
	e.conf = limitsConfig{
		Root:         s.root(),
		Backend:      s.child(childConfig{what: "soldout"}).addr,
		Empty:        testenv.FreeAddress(s),
		Rules:        testenv.FreeAddress(s),
		Static:       testenv.FreeAddress(s),
		Edge:         testenv.FreeAddress(s),
		Constant:     testenv.FreeAddress(s),
		Unnumbered:   testenv.FreeAddress(s),
		StaticLogged: testenv.FreeAddress(s),
		EdgeLogged:   testenv.FreeAddress(s),
		Limited:      quoted(limited.Body()),
		Gone:         quoted(problem.New(problem.SoldOut, "All units are sold.").Body()),
	}
	for _, m := range []string{"ndk_http_module.so", "ngx_http_lua_module.so"} { // OpenResty has them built in
		path := filepath.Join("/usr/lib/nginx/modules", m)
		if _, err := os.Stat(path); err == nil {
			e.conf.Modules = append(e.conf.Modules, path)
		}
	}
	dir := s.TempDir()
	// Relative names in the configuration, such as those in snippets, are relative to its directory.
	s.check(os.Symlink(filepath.Join(s.root(), "lua"), filepath.Join(dir, "lua")))
	s.check(os.Symlink(filepath.Join(s.root(), "nginx/snippets"), filepath.Join(dir, "snippets")))
	policy := filepath.Join(dir, "policy.lua")
	s.check(os.WriteFile(policy, []byte(limitsPolicy), 0o644))
	var conf strings.Builder
	s.check(template.Must(template.New("").Parse(limitsConf)).Execute(&conf, e.conf))
	at := s.nginx(e.conf.Empty, dir, conf.String(), "SLUICE_TOKEN_SECRET="+secret, "SLUICE_POLICY="+policy,
		"SLUICE_EDGE_PLAIN="+os.Getenv("SLUICE_EDGE_PLAIN"))
	e.nginx = newMeter("nginx", at.pid)

	e.buyers, e.flood = filepath.Join(dir, "buyers"), filepath.Join(dir, "flood")
	s.check(writeRequests(e.buyers, known, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", i) }))
	s.check(writeRequests(e.flood, known, func(b []byte, i int) []byte { return buyRequest(b, "flood", "", i) }))
	return e
}

// quoted fits between single quotes of nginx's configuration and of Lua.
func quoted(body []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(body))
}

// measure sends the requests of a file repeatedly, and checks the status of the responses.
func (e *edges) measure(addr, requests string, status int) measurement {
	return func(ctx context.Context) (float64, error) {
		got, err := e.wrk.repeat(ctx, addr, requests, e.cfg.seconds, e.nginx)
		if err != nil {
			return 0, err
		}
		// The first answer does not count: a bucket admits one request, and a backend answers "sold out" once.
		if good := status < 400; good && got.refused > 0 || !good && got.refused < got.answers-known {
			return 0, fmt.Errorf("%d of %d answers were rejections, and the expected status is %d",
				got.refused, got.answers, status)
		}
		return got.perSecond, nil
	}
}

// newBuyers sends each request with a token that has not been seen.
func (e *edges) newBuyers(addr string) measurement {
	return e.wrk.fresh(40_000, e.cfg,
		func(_ context.Context, path string, n int) error {
			first := e.next
			e.next += n
			return writeRequests(path, n, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", first+i) })
		},
		func(ctx context.Context, requests string, _ int) (float64, error) {
			got, err := e.wrk.load(ctx, addr, requests, e.cfg.seconds, e.nginx)
			if err == nil && got.refused > 0 {
				err = fmt.Errorf("%d of %d answers were rejections", got.refused, got.answers)
			}
			return got.perSecond, err
		})
}
