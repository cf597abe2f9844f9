package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
)

const (
	maxBuffered = 64 << 10 // bytes of a response body; longer ones are streamed
	maxInterim  = 8        // 1xx responses before the final one
)

// exchange sends the request over one connection and fills the response. It returns the connection to the pool,
// closes it, or passes it to the response's stream.
func (p *Proxy) exchange(ctx *fasthttp.RequestCtx, r *Request, u *upstream, c *backendConn, now time.Duration) error {
	err := p.send(ctx, r, c, now)
	if err != nil {
		_ = c.Close()
		return err
	}
	resp := &ctx.Response
	reuse := !resp.Header.ConnectionClose()
	length := resp.Header.ContentLength()
	r.filter(&resp.Header)
	if ctx.IsHead() || Bodyless(resp.StatusCode()) {
		resp.SkipBody = true
		u.release(c, reuse)
		return nil
	}
	if length >= 0 && length <= maxBuffered {
		if err := resp.ReadBody(c.reader, maxBuffered); err != nil {
			_ = c.Close()
			return classify(err)
		}
		u.release(c, reuse)
		return nil
	}
	return p.startStream(ctx, r, u, c, length, reuse)
}

// send writes the request and reads the head of the response.
func (p *Proxy) send(ctx *fasthttp.RequestCtx, r *Request, c *backendConn, now time.Duration) error {
	if err := c.setTimeout(p.clock, now, r.Timeout); err != nil {
		return errBroken
	}
	if p.config.Now != nil {
		now = p.config.Now()
	}
	r.SentAt = now.Milliseconds()
	if _, err := c.Write(r.head); err != nil {
		return classify(err)
	}
	resp := &ctx.Response
	for range maxInterim {
		if err := resp.Header.Read(c.reader); err != nil {
			return classify(err)
		}
		if status := resp.StatusCode(); status >= 200 && status <= 599 {
			return nil
		} else if status == fasthttp.StatusSwitchingProtocols || status < 100 || status > 599 {
			break
		}
	}
	return errInvalid
}

var http11 = []byte("HTTP/1.1")

// filter removes the headers that concern only the connection between backend and edge: hop-by-hop headers, those
// named by Connection, and Sluice-*, of which it keeps Sluice-Sale in r.SaleHint.
func (r *Request) filter(h *fasthttp.ResponseHeader) {
	h.ResetConnectionClose()
	h.SetProtocol(http11)
	r.dropped, r.SaleHint = r.dropped[:0], r.SaleHint[:0]
	twice := false
	for name, value := range h.All() {
		switch {
		case ascii.EqualFold(name, "connection"):
			for option := range bytes.SplitSeq(value, []byte{','}) {
				option = bytes.Trim(option, " \t")
				if len(option) > 0 && !ascii.EqualFold(option, "close") && !ascii.EqualFold(option, "keep-alive") {
					r.dropped = append(append(r.dropped, option...), '\n')
				}
			}
		case ascii.EqualFold(name, "sluice-sale"):
			twice = len(r.SaleHint) > 0
			r.SaleHint = append(r.SaleHint, value...)
		case ascii.HasPrefixFold(name, "sluice-"), ascii.HasPrefixFold(name, "x-accel-"), isHopByHop(name):
		default:
			continue
		}
		r.dropped = append(append(r.dropped, name...), '\n')
	}
	if twice {
		r.SaleHint = r.SaleHint[:0]
	}
	for rest := r.dropped; len(rest) > 0; {
		var name []byte
		name, rest, _ = bytes.Cut(rest, []byte{'\n'})
		removeFold(h, name)
	}
}

func isHopByHop(name []byte) bool {
	var lower [len("proxy-authenticate")]byte
	if len(name) > len(lower) {
		return false
	}
	switch string(ascii.AppendLower(lower[:0], name)) {
	case "te", "trailer", "upgrade", "keep-alive", "proxy-connection", "transfer-encoding", "proxy-authenticate":
		return true
	case "date": // fasthttp adds its own Date unless there is one with this exact spelling
		return string(name) != "Date"
	}
	return false
}

// removeFold removes all spellings of a header. The response keeps names as the backend wrote them.
func removeFold(h *fasthttp.ResponseHeader, name []byte) {
	var spelled []string
	for k := range h.All() {
		if bytes.EqualFold(k, name) {
			spelled = append(spelled, string(k))
		}
	}
	for _, k := range spelled {
		h.Del(k)
	}
}

// Bodyless reports whether a response with this status has no body.
func Bodyless(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}

// failure is why an attempt failed.
type failure struct {
	label string // in the metric sluice_edge_upstream_failures_total
	text  string // in the access log
}

func (f *failure) Error() string { return f.text }

// The failures of an attempt.
var (
	errDial    = &failure{"dial", "backend unreachable"}
	errBroken  = &failure{"broken", "backend closed the connection without a response"}
	errTimeout = &failure{"timeout", "backend did not respond in time"}
	errInvalid = &failure{"invalid", "backend sent an invalid response"}
)

// classify returns the failure that an error on a backend connection means.
func classify(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	case errors.As(err, &timeout),
		errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return errBroken
	}
	return errInvalid
}
