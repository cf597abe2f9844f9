package gateway

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"

	"github.com/valyala/fasthttp"
)

// compose writes the request that a backend gets, head and body: the client's own lines where they may pass, and what the edge says in place of the
// others. The path is as the client sent it.
func (x *exchange) compose(ctx *fasthttp.RequestCtx) {
	h := &ctx.Request.Header
	method, body := h.Method(), ctx.Request.Body()
	b := append(x.request[:0], method...)
	b = append(b, ' ')
	b = append(b, h.RequestURI()...)
	b = append(b, " HTTP/1.1\r\n"...)
	for i := range x.headers.lines {
		line := &x.headers.lines[i]
		// Of two tokens, the backend must see the one that was judged.
		if line.fate == drop || line.fate == otherToken && x.headers.authorized {
			continue
		}
		b = append(b, line.line...)
	}
	if !x.headers.host {
		b = append(b, "Host: localhost\r\n"...)
	}
	b = append(b, "X-Request-Id: "...)
	b = append(b, x.id[:]...)
	b = append(b, "\r\nX-Real-IP: "...)
	b = x.client.AppendTo(b)
	b = append(b, "\r\nX-Forwarded-For: "...)
	b = x.client.AppendTo(b)
	b = append(b, "\r\nX-Forwarded-Proto: http"...)
	if x.gateway.certificate != nil {
		b = append(b, 's')
	}
	b = append(b, "\r\n"...)
	if len(body) > 0 || !(h.IsGet() || h.IsHead()) {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	x.request = append(b, body...)
}

// newID makes the request's id, which nobody can foresee: the backend remembers a purchase under it.
func (x *exchange) newID() {
	var id [16]byte
	for i := 0; i < len(id); i += 8 {
		n := rand.Uint64()
		for j := range 8 {
			id[i+j] = byte(n >> (8 * j))
		}
	}
	hex.Encode(x.id[:], id[:])
}
