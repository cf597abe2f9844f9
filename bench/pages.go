package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// pages measures the sale page under load: through the nginx edge with every limit, beside the same bytes as a file
// of a plain nginx, and beside the backend without an edge. It also reports how few requests reach the backend.
func pages(s *stage, cfg settings) contest {
	h := newDeployment(s, cfg)
	ctx := context.Background()
	s.check(h.createSale(ctx, h.at, saleID, 1000, "1h"))
	body, err := fetch(ctx, "http://"+h.at.addr+"/s/"+saleID, "")
	s.check(err)
	file := s.plainFile(body)
	requests := filepath.Join(h.wrk.dir, "pages")
	s.check(writeRequests(requests, 100_000, opening))
	const kept, plain, direct = "page, through the edge", "the same bytes, a file of nginx", "page, from the backend"
	return contest{
		name: "pages", unit: "pages",
		contestants: []contestant{
			{kept, h.countPages(h.wrk.steady(h.edge.addr, requests, cfg, h.parts))},
			{plain, h.wrk.steady(file.addr, requests, cfg, newMeter("nginx", file.pid))},
			{direct, h.wrk.steady(h.at.addr, requests, cfg, newMeter("backend", h.at.pid))},
		},
		ratios: []ratio{
			{"page through the edge, against a file", kept, plain, 0, 0},
			{"page through the edge, against the backend alone", kept, direct, 0, 0},
		},
	}
}

// opening is the request with which a browser opens the page, from an address of its own.
func opening(b []byte, i int) []byte {
	language := [...]string{"en-GB,en;q=0.9", "zh-CN,zh;q=0.9,en;q=0.8", "de,en;q=0.7"}[i%3]
	return fmt.Appendf(b, "GET /s/%s HTTP/1.1\r\nHost: bench\r\nAccept: text/html\r\nAccept-Language: %s\r\n"+
		"X-Forwarded-For: %s\r\n\r\n", saleID, language, addressOf(i))
}

// countPages prints how many requests reached the backend during a measurement.
func (h *deployment) countPages(measure measurement) measurement {
	return func(ctx context.Context) (float64, error) {
		before, err := h.pagesMade(ctx)
		if err != nil {
			return 0, err
		}
		perSecond, err := measure(ctx)
		if err != nil {
			return 0, err
		}
		after, err := h.pagesMade(ctx)
		fmt.Fprintf(os.Stderr, "  the backend rendered %d pages\n", after-before)
		return perSecond, err
	}
}

// pagesMade returns the number of sale pages that the backend has rendered.
func (h *deployment) pagesMade(ctx context.Context) (int64, error) {
	routes, err := counters(ctx, h.at.admin, `sluice_http_requests_total{code="200",route=`)
	n, found := routes["/s/:sale"]
	if err == nil && !found {
		return 0, fmt.Errorf("the backend counts no pages: %v", routes)
	}
	return n, err
}

// plainFile serves the body as a file of a plain nginx.
func (s *stage) plainFile(body []byte) server {
	dir := s.TempDir()
	s.check(os.Mkdir(filepath.Join(dir, "s"), 0o755))
	s.check(os.WriteFile(filepath.Join(dir, "s", saleID), body, 0o644))
	return s.plainNginx(dir, `    keepalive_requests 1000000;
    sendfile on; tcp_nopush on;
    open_file_cache max=10;
    default_type text/html;
    server { listen %s backlog=4096; root `+dir+`; }`)
}
