package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pages measures the sale page under load: through the nginx edge with every limit, beside the same bytes as a file
// of a plain nginx, and beside the backend without an edge. It also reports how few requests reach the backend.
func pages(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	h, err := newHouse(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	if err := h.sluice(
		ctx,
		"sale",
		"create",
		"--id",
		saleID,
		"--title",
		"Bench",
		"--stock",
		"1000",
		"--price",
		"99.90EUR",
		"--opens",
		"1h",
	); err != nil {
		return nil, err
	}
	body, err := fetch(ctx, "http://"+h.backend+"/s/"+saleID, "")
	if err != nil {
		return nil, err
	}
	file, err := h.plainFile(body)
	if err != nil {
		return nil, err
	}
	requests := filepath.Join(h.dir, "pages")
	if err := writeRequests(requests, 100_000, opening); err != nil {
		return nil, err
	}
	const kept, plain, direct = "page, through the edge", "the same bytes, a file of nginx", "page, from the backend"
	c := contest{
		name: "pages", unit: "pages",
		contestants: []contestant{
			{kept, h.open(h.edge, requests, true)},
			{plain, h.open(file, requests, false)},
			{direct, h.open(h.backend, requests, false)},
		},
		ratios: []ratio{
			{"page through the edge, against a file", kept, plain, 0, 0},
			{"page through the edge, against the backend alone", kept, direct, 0, 0},
		},
	}
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// opening is what a browser of a crowd sends, from an address of its own.
func opening(b []byte, i int) []byte {
	language := [...]string{"en-GB,en;q=0.9", "zh-CN,zh;q=0.9,en;q=0.8", "de,en;q=0.7"}[i%3]
	return fmt.Appendf(
		b,
		"GET /s/%s HTTP/1.1\r\nHost: bench\r\nAccept: text/html\r\nAccept-Language: %s\r\nX-Forwarded-For: "+
			"10.%d.%d.%d\r\n\r\n",
		saleID,
		language,
		byte(i>>16),
		byte(i>>8),
		byte(i),
	)
}

// open requests the page at an address as fast as it is answered. report prints how many requests reached the backend.
func (h *house) open(addr, requests string, report bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		before, err := h.pagesMade(ctx)
		if err != nil {
			return 0, err
		}
		got, err := h.wrk.load(ctx, addr, requests, h.cfg.seconds)
		if err != nil && !errors.Is(err, errTooFew) {
			return 0, err
		}
		if got.refused > 0 {
			return 0, fmt.Errorf("%d refusals", got.refused)
		}
		after, err := h.pagesMade(ctx)
		if err != nil {
			return 0, err
		}
		if report {
			fmt.Fprintf(os.Stderr, "  %d openings, of which the backend saw %d; p50 %v  p99 %v\n",
				got.answers, after-before, got.p50.Round(10*time.Microsecond), got.p99.Round(10*time.Microsecond))
		}
		return got.perSecond, nil
	}
}

// pagesMade is how many pages of sales the backend has made.
func (h *house) pagesMade(ctx context.Context) (int64, error) {
	routes, err := counters(ctx, h.admin, `sluice_http_requests_total{code="200",route=`)
	n, found := routes["/s/:sale"]
	if err == nil && !found {
		return 0, fmt.Errorf("the backend counts no pages: %v", routes)
	}
	return n, err
}

// plainFile serves the body by an nginx that has nothing else to do, and returns its address.
func (h *house) plainFile(body []byte) (addr string, err error) {
	addr, dir := h.stage.address(), h.stage.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	text := strings.NewReplacer("{{workers}}", edgeWorkers, "{{dir}}", dir, "{{addr}}", addr).Replace(plainFileConf)
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "s"), 0o755),
		os.WriteFile(filepath.Join(dir, "s", saleID), body, 0o644),
		os.WriteFile(conf, []byte(text), 0o644),
		os.Chmod(dir, 0o755),
	); err != nil {
		return "", err
	}
	p, err := h.stage.start(dir, nil, h.nginx, "-p", dir, "-c", conf)
	if err != nil {
		return "", err
	}
	return addr, p.await(addr)
}

const plainFileConf = `worker_processes {{workers}};
daemon off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    keepalive_requests 1000000;
    sendfile on; tcp_nopush on;
    open_file_cache max=10;
    default_type text/html;
    server { listen {{addr}} backlog=4096; root {{dir}}; }
}
`
