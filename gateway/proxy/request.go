package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Request holds what the proxy needs to forward one request, and what it found out. The zero value is ready for use;
// Reset makes it ready for another request. Not safe for concurrent use.
type Request struct {
	Headers Headers
	Client  netip.Addr // sent as X-Real-IP and X-Forwarded-For
	ID      [32]byte   // sent as X-Request-Id; see NewID

	Timeout    time.Duration // for a backend to respond
	Repeatable bool          // the request may be sent again although a backend may have processed it

	LogAttempts bool // fill Attempts

	SaleHint []byte   // value of the response header Sluice-Sale; empty if there is none, or more than one
	Attempts Attempts // for the access log and spans

	head   []byte // of the request to the backend, with the body
	stream *stream
	http10 bool // the response cannot be sent, because the client uses HTTP/1.0
}

// Attempts describes the attempts to forward a request. Values of several attempts are separated by commas, as in
// nginx's log variables.
type Attempts struct {
	Upstreams, Statuses, Seconds []byte
}

// Reset clears the request and keeps its buffers.
func (r *Request) Reset() {
	r.Headers.reset()
	a := Attempts{Upstreams: r.Attempts.Upstreams[:0], Statuses: r.Attempts.Statuses[:0], Seconds: r.Attempts.Seconds[:0]}
	*r = Request{Headers: r.Headers, SaleHint: r.SaleHint[:0], Attempts: a, head: r.head[:0]}
}

// NewID sets a random ID. It must not be predictable: backends deduplicate purchases by it.
func (r *Request) NewID() {
	var id [16]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	hex.Encode(r.ID[:], id[:])
}

// ReadHeaders parses the headers of ctx. It returns false if the request must be rejected as malformed.
func (r *Request) ReadHeaders(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	return r.Headers.read(h.RawHeaders(), h.IsHTTP11())
}

// Streaming reports whether the response body is being streamed, and is incomplete when the handler returns.
func (r *Request) Streaming() bool { return r.stream != nil && !r.stream.closed }

// OnStreamEnd makes the stream call f when it has ended, with the number of bytes sent. Call it only if Streaming is
// true.
func (r *Request) OnStreamEnd(f func(sent int64)) { r.stream.onEnd = f }

// compose writes the request for the backend, head and body: the client's headers that pass, and those that the edge
// sets. The path is the one that the client sent.
func (r *Request) compose(ctx *fasthttp.RequestCtx, tls bool) {
	h := &ctx.Request.Header
	method, body := h.Method(), ctx.Request.Body()
	b := append(r.head[:0], method...)
	b = append(b, ' ')
	b = append(b, h.RequestURI()...)
	b = append(b, " HTTP/1.1\r\n"...)
	for i := range r.Headers.lines {
		line := &r.Headers.lines[i]
		// Of two tokens, only the one that the edge has verified may pass.
		if line.action == drop || line.action == passIfAlone && r.Headers.authorized {
			continue
		}
		b = append(b, line.line...)
	}
	if !r.Headers.host {
		b = append(b, "Host: localhost\r\n"...)
	}
	b = append(b, "X-Request-Id: "...)
	b = append(b, r.ID[:]...)
	b = append(b, "\r\nX-Real-IP: "...)
	b = r.Client.AppendTo(b)
	b = append(b, "\r\nX-Forwarded-For: "...)
	b = r.Client.AppendTo(b)
	b = append(b, "\r\nX-Forwarded-Proto: http"...)
	if tls {
		b = append(b, 's')
	}
	b = append(b, "\r\n"...)
	if len(body) > 0 || !(h.IsGet() || h.IsHead()) {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	r.head = append(b, body...)
}
