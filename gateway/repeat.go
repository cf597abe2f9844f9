package gateway

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"

	"sluice/gateway/known"
	"sluice/internal/problem"
)

// repeated answers a purchase whose refusal is in memory, because its whole sale is sold out, scheduled, paused or closed. It comes before the limits and
// the token: a flood on such a sale costs next to nothing, and takes nothing from anybody's quota.
func (g *Gateway) repeated(ctx *fasthttp.RequestCtx, x *exchange) bool {
	x.sale = saleOf(&ctx.Request.Header, x.path)
	if len(x.sale) == 0 {
		return false
	}
	record, verdict, scratch := g.sales.Look(g.now(), x.sale, x.headers.raw(), x.scratch)
	x.scratch = scratch
	switch verdict {
	case known.Repeat:
		g.repeat(ctx, x, record)
		return true
	case known.Renew:
		x.renews = record
	}
	return false
}

const (
	saleBefore = "/v1/sales/"
	saleAfter  = "/orders"
)

// saleOf is the sale that a purchase is from, or nothing. It knows the plain spelling of the path only: whether another one is a purchase is for the
// backend to say.
func saleOf(h *fasthttp.RequestHeader, path []byte) []byte {
	if len(path) <= len(saleBefore)+len(saleAfter) || !h.IsPost() || string(path[:len(saleBefore)]) != saleBefore || string(path[len(path)-len(saleAfter):]) != saleAfter {
		return nil
	}
	id := path[len(saleBefore) : len(path)-len(saleAfter)]
	if bytes.IndexByte(id, '/') >= 0 || !bytes.Equal(path, splitTarget(h.RequestURI())) {
		return nil
	}
	return id
}

// repeat gives the answer that a backend gave before.
func (g *Gateway) repeat(ctx *fasthttp.RequestCtx, x *exchange, record *known.Record) {
	x.note(string(record.State), nil, 0)
	g.metrics.byState[record.State].Inc()
	resp := &ctx.Response
	resp.SetStatusCode(record.Status)
	for i := range record.Headers {
		h := &record.Headers[i]
		resp.Header.SetBytesKV(h.Name, h.Value)
	}
	if wait := record.Wait(g.wall()); wait > 0 {
		x.quota = strconv.AppendInt(x.quota[:0], wait, 10)
		resp.Header.SetBytesV(fasthttp.HeaderRetryAfter, x.quota)
		x.quota = x.quota[:0]
	}
	resp.SetBodyRaw(record.Body)
}

// learn takes in what the answer to a purchase says of the whole sale. err is why there was no answer.
func (g *Gateway) learn(ctx *fasthttp.RequestCtx, x *exchange, err error) {
	status := ctx.Response.StatusCode()
	switch {
	case err != nil: // it was 503
	case status == fasthttp.StatusAccepted:
		if len(ctx.Response.Header.Peek("Idempotency-Replayed")) == 0 {
			g.sales.Accepted(g.now(), x.sale)
		}
	case status == fasthttp.StatusConflict && len(x.told) > 0:
		if told, ok := known.ReadTold(x.told, x.sale); ok {
			if a, ok := answerForAll(&ctx.Response); ok {
				g.sales.Learn(g.now(), x.sent, string(x.sale), told, a)
			}
		}
	}
	// Whoever went to renew and got no clear answer may have an order all the same: he keeps the turn, and with it passes. Nor is a backend in trouble
	// asked again for the same record.
	if status >= fasthttp.StatusInternalServerError {
		x.renews = nil
	}
}

// maxRepeated is the largest body that is kept, in bytes: five times what a refusal has.
const maxRepeated = 1 << 10

// answerForAll copies a refusal, if it is the same for all clients: without what belongs to this one request, and not at all if something in it says that
// another client would have got another one.
func answerForAll(resp *fasthttp.Response) (a known.Answer, ok bool) {
	if resp.IsBodyStream() || !bytes.Equal(resp.Header.ContentType(), []byte(problem.ContentType)) {
		return a, false
	}
	body := resp.Body()
	if len(body) == 0 || len(body) > maxRepeated {
		return a, false
	}
	a.Status = resp.StatusCode()
	for name, value := range resp.Header.All() {
		switch {
		case foldedEqual(name, "content-length"), foldedEqual(name, "date"), foldedEqual(name, "x-request-id"), hasFoldedPrefix(name, "ratelimit"):
		case foldedEqual(name, "vary"), foldedEqual(name, "set-cookie"), foldedEqual(name, "content-encoding"):
			return a, false
		case foldedEqual(name, "retry-after"):
			seconds, err := strconv.ParseInt(string(value), 10, 32)
			if err != nil || seconds < 1 {
				return a, false
			}
			a.RetryAfter = seconds
		default:
			a.Headers = append(a.Headers, known.Header{Name: bytes.Clone(name), Value: bytes.Clone(value)})
		}
	}
	a.Body = bytes.Clone(body)
	return a, true
}
