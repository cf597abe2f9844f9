package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sluice/test/testenv"
)

// gateways compares the Go gateway, which checks every request against two rules and verifies its token, with proxies
// that check nothing (Caddy, the standard library's ReverseProxy, a minimal fasthttp proxy) and with the nginx edge,
// which does the same work. Behind each is the same Fiber hello handler. All get the same requests: purchases of
// 50,000 buyers, each with its own token and address.
func gateways(s *stage, cfg settings) contest {
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
	ctx := context.Background()
	bin, load, hello := s.build(), s.wrk(), s.child(childConfig{what: "hello"})
	env := []string{"SLUICE_TOKEN_SECRET=" + secret}
	requests := filepath.Join(load.dir, "purchases")
	s.check(writeRequests(requests, 50_000, browserRequest))
	for _, who := range []struct {
		name string
		at   server
	}{
		{ours, s.gateway(bin, env, hello.addr, cfg.profile)},
		{edge, s.edge(bin, env, hello.addr)},
		{caddy, s.caddy(hello.addr)},
		{standard, s.child(childConfig{what: "standard", upstream: hello.addr})},
		{fast, s.child(childConfig{what: "fast", upstream: hello.addr})},
	} {
		// A server that answers without its backend would be fast.
		if body, err := fetch(ctx, "http://"+who.at.addr+"/v1/sales/"+saleID, ""); err != nil || string(body) != helloBody {
			s.Fatalf("%s returned %q, %v instead of the backend's answer", who.name, body, err)
		}
		parts := newMeter(who.name, who.at.pid, "backend", hello.pid)
		c.contestants = append(c.contestants, contestant{who.name, load.steady(who.at.addr, requests, cfg, parts)})
	}
	return c
}

// browserRequest is a purchase as a browser sends it.
func browserRequest(b []byte, i int) []byte {
	return buyRequest(b, saleID, "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"+
		"Accept: */*\r\nAccept-Language: en-US,en;q=0.5\r\n", i)
}

// gateway starts the gateway of sluice. If a directory for profiles is given, it runs in a child process.
func (s *stage) gateway(bin string, env []string, upstream, profiles string) server {
	if profiles != "" {
		return s.child(childConfig{
			what: "gateway", upstream: upstream, policy: s.loadPolicy(),
			profile: filepath.Join(profiles, "gateway.cpu.pprof"),
		})
	}
	addr := testenv.FreeAddress(s)
	return s.serve(addr, env, bin, "gateway", "--listen", addr, "--upstream", upstreamAt(upstream),
		"--policy", s.loadPolicy())
}

// caddyfile configures Caddy as a plain proxy. It keeps more connections to the backend than wrk has.
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

// caddy builds Caddy, the first time in some minutes, and starts it.
func (s *stage) caddy(upstream string) server {
	dir, addr := s.TempDir(), testenv.FreeAddress(s)
	bin, conf := filepath.Join(dir, "caddy"), filepath.Join(dir, "Caddyfile")
	s.tool(filepath.Join(s.root(), "bench", "caddy"), "build", "-o", bin, "github.com/caddyserver/caddy/v2/cmd/caddy")
	s.check(os.WriteFile(conf,
		fmt.Appendf(nil, caddyfile, strings.TrimPrefix(addr, "127.0.0.1:"), upstream, 2*connections), 0o644))
	return s.serve(addr, nil, bin, "run", "--config", conf, "--adapter", "caddyfile")
}
