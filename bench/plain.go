package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/valyala/fasthttp"

	"sluice/gateway"
	"sluice/internal/edgeconfig"
)

// The proxies of contest gateway that run in a child process of this program.

// standard is the standard library's proxy with its defaults, except for the number of idle connections.
func standard(ctx context.Context, ln net.Listener, upstream string) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 2*connections, 2*connections
	target := &url.URL{Scheme: "http", Host: upstream}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded() },
	}
	server := &http.Server{Handler: proxy}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.Serve(ln)
}

// fast is a minimal proxy on fasthttp.
func fast(ctx context.Context, ln net.Listener, upstream string) error {
	client := &fasthttp.HostClient{
		Addr:                          upstream,
		MaxConns:                      4 * connections,
		DisableHeaderNamesNormalizing: true,
		DisablePathNormalizing:        true,
		NoDefaultUserAgentHeader:      true,
	}
	server := &fasthttp.Server{
		DisableHeaderNamesNormalizing: true,
		NoDefaultServerHeader:         true,
		CloseOnShutdown:               true,
		Handler: func(c *fasthttp.RequestCtx) {
			c.Request.Header.Del("Connection")
			if err := client.Do(&c.Request, &c.Response); err != nil {
				c.SetStatusCode(fasthttp.StatusBadGateway)
			}
			c.Response.Header.Del("Connection")
		},
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	return server.Serve(ln)
}

// edgeHere runs `sluice gateway` in this process, so that it can be profiled.
func edgeHere(ctx context.Context, ln net.Listener, c childConfig) error {
	g, err := gateway.New(gateway.Config{
		Shared: edgeconfig.Shared{Upstreams: []string{c.upstream}, Secret: secret}, PolicyPath: c.policy,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return g.Serve(ctx, ln)
}
