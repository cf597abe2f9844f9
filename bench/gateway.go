package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sluice/internal/token"
	"sluice/test/testenv"
)

// gateways compares the Go gateway, which checks every request against two rules and verifies its token, with proxies
// that check nothing (Caddy, the standard library's ReverseProxy, a minimal fasthttp proxy) and with the nginx edge,
// which does the same work. Behind each is the same Fiber hello handler. All get the same requests: purchases of
// 50,000 buyers, each with its own token and address.
func gateways(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	row, err := newRow(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	const (
		ours     = "sluice gateway"
		edge     = "sluice edge (nginx, 2 workers)"
		caddy    = "Caddy, no limiter"
		standard = "net/http ReverseProxy"
		fast     = "fasthttp proxy"
	)
	c := contest{
		name: "gateway", unit: "answers",
		ratios: []ratio{
			{"gateway, with two rules, against Caddy without", ours, caddy, 2.5, 0},
			{"gateway against the nginx edge, same policy", ours, edge, 0.75, 0},
			{"gateway against net/http ReverseProxy", ours, standard, 0, 0},
			{"gateway against a plain fasthttp proxy", ours, fast, 0, 0},
		},
	}
	for _, who := range []struct {
		name  string
		start func(context.Context) (server, error)
	}{{ours, row.gateway}, {edge, row.edge}, {caddy, row.caddy}, {standard, row.child("standard")}, {fast, row.child("fast")}} {
		at, err := who.start(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", who.name, err)
		}
		if err := row.check(ctx, at); err != nil {
			return nil, fmt.Errorf("%s: %w", who.name, err)
		}
		c.contestants = append(c.contestants, contestant{who.name, row.measure(who.name, at)})
	}
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// row is what the proxies have in common: what is before them and what is behind.
type row struct {
	stage    *stage
	cfg      settings
	wrk      *wrk
	bin      string
	root     string
	policy   string
	requests string
	hello    server
}

func newRow(ctx context.Context, s *stage, cfg settings) (*row, error) {
	r := &row{stage: s, cfg: cfg}
	var err error
	if r.wrk, err = s.wrk(); err != nil {
		return nil, err
	}
	if r.root, err = root(ctx); err != nil {
		return nil, err
	}
	if r.bin, err = s.build(ctx); err != nil {
		return nil, err
	}
	// the shipped one, and trusts X-Forwarded-For from this machine
	r.policy = filepath.Join(r.root, "loadtest", "policy.lua")
	r.hello.addr = s.address()
	hello, err := s.startChild(childConfig{what: "hello", listen: r.hello.addr})
	if err != nil {
		return nil, err
	}
	r.hello.pid = hello.cmd.Process.Pid
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	r.requests = filepath.Join(s.TempDir(), "requests")
	const buyers = 50_000
	return r, writeRequests(r.requests, buyers, func(b []byte, i int) []byte { return browserRequest(b, key, i) })
}

// check verifies that a proxy forwards: a server that answers without its backend would be fast.
func (r *row) check(ctx context.Context, at server) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(browserRequest(nil, key, 0)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != helloBody {
		return fmt.Errorf("answered %d %q, %v instead of the backend's answer", resp.StatusCode, body, err)
	}
	return nil
}

// browserRequest is a purchase as a browser sends it.
func browserRequest(b []byte, key *token.Key, i int) []byte {
	raw, err := key.Sign(buyerName(i), time.Hour)
	if err != nil {
		panic(err) // HS256 cannot fail
	}
	b = fmt.Appendf(b, "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n", saleID)
	b = append(
		b,
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\nAccept: "+
			"*/*\r\nAccept-Language: en-US,en;q=0.5\r\n"...)
	b = fmt.Appendf(b, "X-Forwarded-For: 10.%d.%d.%d\r\nAuthorization: Bearer ", byte(i>>16), byte(i>>8), byte(i))
	return append(append(b, raw...), "\r\n\r\n"...)
}

// gateway starts ours. With a profile, it is put together in a child process.
func (r *row) gateway(context.Context) (server, error) {
	if r.cfg.profile != "" {
		return r.start(childConfig{what: "gateway", profile: filepath.Join(r.cfg.profile, "gateway.cpu.pprof")})
	}
	addr := r.stage.address()
	p, err := r.stage.start(
		r.root,
		[]string{"SLUICE_TOKEN_SECRET=" + secret},
		r.bin,
		"gateway",
		"--listen",
		addr,
		"--upstream",
		"http://"+r.hello.addr,
		"--policy",
		r.policy,
	)
	if err != nil {
		return server{}, err
	}
	return server{addr, p.cmd.Process.Pid}, p.await(addr)
}

func (r *row) edge(context.Context) (server, error) {
	addr := r.stage.address()
	p, err := r.stage.start(
		r.root,
		[]string{"SLUICE_TOKEN_SECRET=" + secret},
		r.bin,
		"edge",
		"--listen",
		addr,
		"--upstream",
		"http://"+r.hello.addr,
		"--workers",
		edgeWorkers,
		"--nginx",
		testenv.Find(r.stage, "nginx", "nginx-light"),
		"--policy",
		r.policy,
		"--prefix",
		filepath.Join(r.stage.TempDir(), "edge"),
	)
	if err != nil {
		return server{}, err
	}
	return server{addr, p.cmd.Process.Pid}, p.await(addr)
}

// caddyfile is Caddy as a mere proxy. Connections to the backend are kept by default; as many as wrk has may be.
const caddyfile = `{
	admin off
	auto_https off
	persist_config off
}
:%s {
	bind 127.0.0.1
	reverse_proxy %s {
		transport http {
			keepalive_idle_conns_per_host %d
		}
	}
}
`

// caddy builds Caddy, which takes some minutes for the first time, and starts it.
func (r *row) caddy(ctx context.Context) (server, error) {
	dir, addr := r.stage.TempDir(), r.stage.address()
	bin, conf := filepath.Join(dir, "caddy"), filepath.Join(dir, "Caddyfile")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/caddyserver/caddy/v2/cmd/caddy")
	build.Dir = filepath.Join(r.root, "bench", "caddy")
	if out, err := build.CombinedOutput(); err != nil {
		return server{}, errors.Join(fmt.Errorf("build caddy: %w", err), errors.New(string(out)))
	}
	if err := os.WriteFile(
		conf,
		fmt.Appendf(nil, caddyfile, strings.TrimPrefix(addr, "127.0.0.1:"), r.hello.addr, 2*connections),
		0o644,
	); err != nil {
		return server{}, err
	}
	p, err := r.stage.start(
		dir,
		[]string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir},
		bin,
		"run",
		"--config",
		conf,
		"--adapter",
		"caddyfile",
	)
	if err != nil {
		return server{}, err
	}
	return server{addr, p.cmd.Process.Pid}, p.await(addr)
}

// child starts a proxy of this program.
func (r *row) child(what string) func(context.Context) (server, error) {
	return func(context.Context) (server, error) { return r.start(childConfig{what: what}) }
}

func (r *row) start(c childConfig) (server, error) {
	c.listen, c.upstream, c.policy = r.stage.address(), r.hello.addr, r.policy
	p, err := r.stage.startChild(c)
	if err != nil {
		return server{}, err
	}
	return server{c.listen, p.cmd.Process.Pid}, nil
}

// measure loads one proxy. Every answer must be the backend's.
func (r *row) measure(name string, at server) func(context.Context) (float64, error) {
	var parts meter
	parts.add(name, at.pid)
	parts.add("backend", r.hello.pid)
	return func(ctx context.Context) (float64, error) {
		spent := parts.read()
		got, err := r.wrk.load(ctx, at.addr, r.requests, r.cfg.seconds)
		if err != nil && !errors.Is(err, errTooFew) { // the handler does not care how often it gets a request
			return 0, err
		}
		fmt.Fprintf(
			os.Stderr,
			"  each answer: %s  p50 %v  p99 %v\n",
			parts.each(spent, got.answers),
			got.p50.Round(10*time.Microsecond),
			got.p99.Round(10*time.Microsecond),
		)
		if got.refused > 0 {
			return 0, fmt.Errorf("%d of %d answers are refusals", got.refused, got.answers)
		}
		return got.perSecond, nil
	}
}
