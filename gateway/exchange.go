package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/known"
	"sluice/gateway/limit"
)

// exchange is what the edge keeps about one request while it is under way. Exchanges are pooled.
type exchange struct {
	gateway *Gateway
	headers headers
	path    []byte // decoded
	client  netip.Addr
	id      [32]byte

	rules    []*rule // those that cover the request, and in step with them:
	asks     []limit.Ask
	verdicts []limit.Verdict

	quota, quotaPolicy []byte // RateLimit and RateLimit-Policy of an answer from the backend

	request    []byte // as the backend gets it
	timeout    time.Duration
	repeatable bool
	doomed     []byte // names of response headers to drop, each ending in a line feed

	// for what is known of whole sales
	sale    []byte        // of a purchase that it covers; in path
	renews  *known.Record // the request goes to renew it
	scratch []byte
	sent    int64  // ms: when the backend was asked
	told    []byte // its Sluice-Sale, if it said one

	// for the log
	logged    bool
	buyer     string
	verdict   string
	rule      *rule
	remaining int
	shadow    string
	reason    string
	unread    bool // there is no request to tell of

	// of each backend that was asked, with commas between
	upstream, upstreamStatus, upstreamSeconds []byte

	key       limit.Key // what the client counts as
	entered   bool      // it is in the crowd
	streaming *stream   // the body of the answer, if it is passed on as it comes
}

func (x *exchange) reset() {
	x.headers.reset()
	clear(x.rules)
	*x = exchange{gateway: x.gateway, headers: x.headers, path: x.path[:0], rules: x.rules[:0], asks: x.asks[:0], verdicts: x.verdicts[:0],
		quota: x.quota[:0], quotaPolicy: x.quotaPolicy[:0], request: x.request[:0], doomed: x.doomed[:0],
		scratch: x.scratch, told: x.told[:0], upstream: x.upstream[:0], upstreamStatus: x.upstreamStatus[:0], upstreamSeconds: x.upstreamSeconds[:0]}
}

func (x *exchange) note(verdict string, r *rule, remaining int) {
	x.verdict, x.rule, x.remaining = verdict, r, remaining
}

const (
	maxBuffered = 64 << 10 // bytes of a response that is read whole before it is passed on; a longer one is streamed
	maxInterim  = 8        // 1xx responses before the real one
)

// over sends the request over one connection and fills the response. The connection goes back to its pool, is closed, or belongs to the response's
// stream.
func (x *exchange) over(ctx *fasthttp.RequestCtx, u *upstream, c *backendConn, now time.Duration) error {
	err := x.send(ctx, c, now)
	if err != nil {
		_ = c.Close()
		return err
	}
	resp := &ctx.Response
	reuse := !resp.Header.ConnectionClose()
	length := resp.Header.ContentLength()
	x.filter(&resp.Header)
	if ctx.IsHead() || bodyless(resp.StatusCode()) {
		resp.SkipBody = true
		x.finish(u, c, reuse)
		return nil
	}
	if length >= 0 && length <= maxBuffered {
		if err := resp.ReadBody(c.reader, maxBuffered); err != nil {
			_ = c.Close()
			return failure(err)
		}
		x.finish(u, c, reuse)
		return nil
	}
	return x.stream(ctx, u, c, length, reuse)
}

// send writes the request and reads the head of the answer.
func (x *exchange) send(ctx *fasthttp.RequestCtx, c *backendConn, now time.Duration) error {
	if err := c.allow(x.gateway.clock, now, x.timeout); err != nil {
		return errBroken
	}
	if len(x.sale) > 0 {
		x.sent = x.gateway.now()
	}
	if _, err := c.Write(x.request); err != nil {
		return failure(err)
	}
	resp := &ctx.Response
	for range maxInterim {
		if err := resp.Header.Read(c.reader); err != nil {
			return failure(err)
		}
		if status := resp.StatusCode(); status >= 200 && status <= 599 {
			return nil
		} else if status == fasthttp.StatusSwitchingProtocols || status < 100 || status > 599 {
			break
		}
	}
	return errGarbled
}

// finish gives the connection back when nothing is left in it.
func (x *exchange) finish(u *upstream, c *backendConn, reuse bool) {
	if !reuse || c.reader.Buffered() > 0 {
		_ = c.Close()
		return
	}
	u.put(c)
}

// filter removes what is between the backend and the edge: hop-by-hop headers, those that Connection names, and Sluice-*.
func (x *exchange) filter(h *fasthttp.ResponseHeader) {
	h.ResetConnectionClose()
	h.SetProtocol(http11)
	x.doomed, x.told = x.doomed[:0], x.told[:0]
	twice := false
	for name, value := range h.All() {
		switch {
		case foldedEqual(name, "connection"):
			for option := range bytes.SplitSeq(value, []byte{','}) {
				if option = bytes.Trim(option, " \t"); len(option) > 0 && !foldedEqual(option, "close") && !foldedEqual(option, "keep-alive") {
					x.doomed = append(append(x.doomed, option...), '\n')
				}
			}
		case foldedEqual(name, "sluice-sale"):
			twice = len(x.told) > 0
			x.told = append(x.told, value...)
		case hasFoldedPrefix(name, "sluice-"), hasFoldedPrefix(name, "x-accel-"), ownOfConnection(name):
		default:
			continue
		}
		x.doomed = append(append(x.doomed, name...), '\n')
	}
	if twice {
		x.told = x.told[:0]
	}
	for rest := x.doomed; len(rest) > 0; {
		var name []byte
		name, rest, _ = bytes.Cut(rest, []byte{'\n'})
		removeFolded(h, name)
	}
}

func ownOfConnection(name []byte) bool {
	switch len(name) {
	case len("te"):
		return foldedEqual(name, "te")
	case len("date"): // fasthttp writes one, and leaves out another only if it is spelled like its own
		return foldedEqual(name, "date") && string(name) != "Date"
	case len("trailer"):
		return foldedEqual(name, "trailer") || foldedEqual(name, "upgrade")
	case len("keep-alive"):
		return foldedEqual(name, "keep-alive")
	case len("proxy-connection"):
		return foldedEqual(name, "proxy-connection")
	case len("transfer-encoding"):
		return foldedEqual(name, "transfer-encoding")
	case len("proxy-authenticate"):
		return foldedEqual(name, "proxy-authenticate")
	}
	return false
}

// removeFolded removes a header whatever the case of its letters. Names are passed on as the backend wrote them, so there may be several spellings.
func removeFolded(h *fasthttp.ResponseHeader, name []byte) {
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

var http11 = []byte("HTTP/1.1")

func bodyless(status int) bool {
	return status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}

// failure is what an error on a backend's connection means.
func failure(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	case errors.As(err, &timeout), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return errBroken
	}
	return errGarbled
}
