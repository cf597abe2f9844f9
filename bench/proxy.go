package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// plainProxy is nginx that only passes on: connections to the backend are kept, and nothing is limited, verified,
// counted or logged.
const plainProxy = `worker_processes %s;
daemon off;
pid %s/nginx.pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
    access_log off;
    keepalive_requests 10000;
    client_body_temp_path %[2]s/body;
    proxy_temp_path %[2]s/proxy;
    fastcgi_temp_path %[2]s/fastcgi;
    uwsgi_temp_path %[2]s/uwsgi;
    scgi_temp_path %[2]s/scgi;
    upstream hello {
        server %s;
        keepalive 128;
        keepalive_requests 100000;
    }
    server {
        listen %s backlog=4096;
        location / {
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass http://hello;
        }
    }
}
`

// proxied starts the plain proxy and its backend, and returns their measurement.
func (h *house) proxied() (func(context.Context) (float64, error), error) {
	hello, front, dir := h.stage.address(), h.stage.address(), h.stage.TempDir()
	backend, err := h.stage.startChild(childConfig{what: "hello", listen: hello})
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, plainProxy, edgeWorkers, dir, hello, front), 0o644); err != nil {
		return nil, err
	}
	proxy, err := h.stage.start(dir, nil, h.nginx, "-p", dir, "-c", conf)
	if err != nil {
		return nil, err
	}
	if err := proxy.await(front); err != nil {
		return nil, err
	}
	var parts meter
	parts.add("nginx", proxy.cmd.Process.Pid)
	parts.add("backend", backend.cmd.Process.Pid)
	requests := ""
	return func(ctx context.Context) (float64, error) {
		if requests == "" { // the same as sluice gets; the handler does not care how often
			requests = filepath.Join(h.dir, "hello")
			if err := writeRequests(
				requests,
				50_000,
				func(b []byte, i int) []byte { return h.request(b, saleID, i) },
			); err != nil {
				return 0, err
			}
		}
		spent := parts.read()
		got, err := h.wrk.load(ctx, front, requests, h.cfg.seconds)
		if err != nil && !errors.Is(err, errTooFew) {
			return 0, err
		}
		fmt.Fprintf(os.Stderr, "  each answer: %s  p50 %v  p99 %v\n",
			parts.each(spent, got.answers), got.p50.Round(10*time.Microsecond), got.p99.Round(10*time.Microsecond))
		if got.refused > 0 {
			return 0, fmt.Errorf("%d refusals", got.refused)
		}
		return got.perSecond, nil
	}, nil
}
