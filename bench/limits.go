package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"sluice/internal/problem"
	"sluice/internal/token"
	"sluice/test/testenv"
)

// limits measures what the edge itself does in nginx, without a backend: two rules against an access phase that is
// empty, a refusal by a limit against a refusal that is written in the configuration, each without a log and with the
// same one, and against one that bears no number; and a sold-out sale against a constant.
func limits(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	e, err := newEdges(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	const (
		rules, empty    = "two rules", "empty access phase"
		fresh           = "two rules, every token a new one"
		rejected, plain = "refused by a limit", "return 429"
		unnumbered      = "return 429, without a request id"
		noted, line     = "refused by a limit, logged", "return 429, logged"
		gone, constant  = "sold out, from memory", "content_by_lua with a constant"
	)
	c := contest{
		name: "limits", unit: "answers",
		contestants: []contestant{
			{rules, e.measure(e.conf.Rules, e.buyers, http.StatusOK)},
			{empty, e.measure(e.conf.Empty, e.buyers, http.StatusOK)},
			{fresh, e.measure(e.conf.Rules, "", http.StatusOK)},
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
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// limitsPolicy has two rules that no request violates, and one that every request violates: at one request per hour
// the load measures rejections. (At one per minute, hundreds of the 2,000 addresses would be admitted in each round.)
const limitsPolicy = `return {
  trusted_proxies = { "127.0.0.0/8" },
  rules = {
    { name = "never", key = "ip", rate = "1r/h", burst = 0, match = { path = "/v1/sales/flood/orders" } },
    { name = "ip", key = "ip", rate = "100000r/s", burst = 100000, match = { path = "/v1/sales/*/orders" } },
    { name = "token", key = "token", rate = "100000r/s", burst = 100000, match = { method = "POST", path = "/v1/sales/*/orders" } },
  },
}
`

//go:embed limits.conf
var limitsConf string

// edges is the one nginx of this contest.
type edges struct {
	stage         *stage
	cfg           settings
	wrk           *wrk
	key           *token.Key
	dir           string
	buyers, flood string // files of requests
	next          int    // buyer that has not been there yet
	nginx         meter
	conf          limitsConfig
}

type limitsConfig struct {
	Modules                              []string
	Root, Backend                        string
	Empty, Rules, Static, Edge, Constant string // addresses
	Unnumbered, StaticLogged, EdgeLogged string
	Limited, Gone                        string // bodies
}

// known is how many buyers come again and again: more than a burst, fewer than what an edge remembers of tokens.
const known = 2000

func newEdges(ctx context.Context, s *stage, cfg settings) (*edges, error) {
	e := &edges{stage: s, cfg: cfg, dir: s.TempDir(), next: known}
	var err error
	if e.wrk, err = s.wrk(); err != nil {
		return nil, err
	}
	if e.key, err = newKey(); err != nil {
		return nil, err
	}
	limited := problem.New(problem.RateLimited, `Too many requests: the policy "never" allows no more right now.`)
	limited.ViolatedPolicies = []string{"never"}
	e.conf = limitsConfig{
		Backend:      s.address(),
		Empty:        s.address(),
		Rules:        s.address(),
		Static:       s.address(),
		Edge:         s.address(),
		Constant:     s.address(),
		Unnumbered:   s.address(),
		StaticLogged: s.address(),
		EdgeLogged:   s.address(),
		Limited:      quoted(limited.Body()),
		Gone:         quoted(problem.New(problem.SoldOut, "All units are sold.").Body()),
	}
	if _, err := s.startChild(childConfig{what: "soldout", listen: e.conf.Backend}); err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	e.buyers, e.flood = filepath.Join(e.dir, "buyers"), filepath.Join(e.dir, "flood")
	return e, errors.Join(
		writeRequests(e.buyers, known, e.purchase),
		writeRequests(e.flood, known, func(b []byte, i int) []byte { return e.order(b, "flood", i) }),
	)
}

// quoted fits between single quotes of nginx's configuration and of Lua.
func quoted(body []byte) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(body))
}

func (e *edges) start(ctx context.Context) error {
	var err error
	if e.conf.Root, err = root(ctx); err != nil {
		return err
	}
	for _, m := range []string{"ndk_http_module.so", "ngx_http_lua_module.so"} { // OpenResty has them built in
		if path := filepath.Join("/usr/lib/nginx/modules", m); exists(path) {
			e.conf.Modules = append(e.conf.Modules, path)
		}
	}
	// Relative names in the configuration are relative to its directory: the snippets refer to each other so.
	for _, link := range [][2]string{{"lua", "lua"}, {"nginx/snippets", "snippets"}} {
		if err := os.Symlink(filepath.Join(e.conf.Root, link[0]), filepath.Join(e.dir, link[1])); err != nil {
			return err
		}
	}
	policy, conf := filepath.Join(e.dir, "policy.lua"), filepath.Join(e.dir, "nginx.conf")
	f, err := os.Create(conf)
	if err != nil {
		return err
	}
	err = errors.Join(
		template.Must(template.New("").Parse(limitsConf)).Execute(f, e.conf),
		f.Close(),
		os.WriteFile(policy, []byte(limitsPolicy), 0o644),
	)
	if err != nil {
		return err
	}
	p, err := e.stage.start(e.dir, []string{"SLUICE_TOKEN_SECRET=" + secret, "SLUICE_POLICY=" + policy},
		testenv.Find(e.stage, "nginx", "nginx-light"), "-p", e.dir, "-c", conf)
	if err != nil {
		return err
	}
	e.nginx.add("nginx", p.cmd.Process.Pid)
	return p.await(e.conf.Empty)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// purchase is the request of one buyer from an address of its own.
func (e *edges) purchase(b []byte, i int) []byte { return e.order(b, saleID, i) }

func (e *edges) order(b []byte, sale string, i int) []byte {
	raw, err := e.key.Sign(buyerName(i), time.Hour)
	if err != nil {
		panic(err) // HS256 cannot fail
	}
	b = fmt.Appendf(
		b,
		"POST /v1/sales/%s/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\nX-Forwarded-For: "+
			"10.%d.%d.%d\r\nAuthorization: Bearer ",
		sale,
		byte(i>>16),
		byte(i>>8),
		byte(i),
	)
	return append(append(b, raw...), "\r\n\r\n"...)
}

// measure sends the requests of a file over and over, and sees that they get the status. Without a file every request
// is a new buyer's.
func (e *edges) measure(addr, requests string, status int) func(context.Context) (float64, error) {
	rate := 60_000.0
	return func(ctx context.Context) (float64, error) {
		perSecond, err := e.once(ctx, addr, requests, status, rate)
		for requests == "" && errors.Is(err, errTooFew) { // a faster machine than was thought
			rate *= 1.5
			perSecond, err = e.once(ctx, addr, requests, status, rate)
		}
		return perSecond, err
	}
}

// once measures one contestant once. rate is how many requests a second are prepared where each is a new buyer's;
// errTooFew: they did not last.
func (e *edges) once(ctx context.Context, addr, requests string, status int, rate float64) (float64, error) {
	file := requests
	if file == "" {
		n := int(rate * e.cfg.seconds.Seconds())
		first := e.next
		e.next += n
		file = filepath.Join(e.dir, "fresh")
		if err := writeRequests(file, n, func(b []byte, i int) []byte { return e.purchase(b, first+i) }); err != nil {
			return 0, err
		}
	}
	spent := e.nginx.read()
	got, err := e.wrk.load(ctx, addr, file, e.cfg.seconds)
	if err != nil && (!errors.Is(err, errTooFew) || requests == "") {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "  each answer: %s  p50 %v  p99 %v\n",
		e.nginx.each(spent, got.answers), got.p50.Round(10*time.Microsecond), got.p99.Round(10*time.Microsecond))
	// The first answer does not count: a bucket admits one request, and a backend answers "sold out" once.
	if good := status < 400; good && got.refused > 0 || !good && got.refused < got.answers-known {
		return 0, fmt.Errorf(
			"%d of %d answers were rejections, and the expected status is %d",
			got.refused,
			got.answers,
			status,
		)
	}
	return got.perSecond, nil
}
