package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/internal/plural"
)

// Serve accepts connections from ln until ctx ends, and then drains: it accepts no more connections, ends event
// streams, waits up to DrainTimeout for other requests, and closes what remains. It returns nil if all requests
// finished in time. Call it once.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	c := &p.config
	l := &listener{Listener: ln, config: c, clock: p.clock, metrics: p.metrics, open: map[*Conn]struct{}{}}
	server := &fasthttp.Server{
		Handler: c.Handler, ErrorHandler: c.Rejected, HeaderReceived: c.headerReceived,
		Logger: debugLogger{c.Logger}, SecureErrorLogMessage: true,
		ReadBufferSize: maxHead + 512, MaxRequestBodySize: c.MaxBody,
		Concurrency:           2 * c.MaxConns, // the listener enforces the limit, and does not count connections that linger
		NoDefaultServerHeader: true, NoDefaultContentType: true, DisablePreParseMultipartForm: true, CloseOnShutdown: true,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	c.Logger.Info("edge listening", "address", ln.Addr().String())

	var err error
	select {
	case err = <-failed:
		if err == nil {
			err = net.ErrClosed
		}
		err = fmt.Errorf("serve: %w", err)
		_ = ln.Close()
	case <-ctx.Done():
		err = p.drain(ctx, server, l)
	}
	for _, u := range p.upstreams {
		u.close()
	}
	return err
}

// drain ends event streams first: they do not end otherwise.
func (p *Proxy) drain(ctx context.Context, server *fasthttp.Server, l *listener) error {
	p.config.Logger.Info("edge draining")
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.DrainTimeout)
	defer cancel()
	p.endStreams()
	err := server.ShutdownWithContext(deadline)
	l.awaitClosed(deadline)
	if left := l.closeAll(); left > 0 {
		return fmt.Errorf("drain: cut off after %v: %s", p.config.DrainTimeout, plural.Count(left, "connection"))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// Prune closes backend connections that have been idle for too long. Call it about once a second.
func (p *Proxy) Prune() {
	for _, u := range p.upstreams {
		u.prune()
	}
}

// headerReceived corrects fasthttp's interpretation of a head. Headers.connection decides whether a connection is
// closed, as nginx does. HTTP/1.0 clients get no interim response, the value of Expect may have any case, and a
// client gets no 100 Continue for a body that is too large.
func (c *Config) headerReceived(h *fasthttp.RequestHeader) (none fasthttp.RequestConfig) {
	h.ResetConnectionClose()
	switch expected := h.Peek(fasthttp.HeaderExpect); {
	case len(expected) == 0:
	case !h.IsHTTP11(), h.ContentLength() > c.MaxBody:
		h.Del(fasthttp.HeaderExpect)
	case ascii.EqualFold(expected, "100-continue"):
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
	return none
}

// debugLogger logs fasthttp's messages about client connections at debug level.
type debugLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (d debugLogger) Printf(format string, args ...any) {
	if d.log.Enabled(context.Background(), slog.LevelDebug) {
		d.log.Debug(fmt.Sprintf(format, args...))
	}
}
