package gateway

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/refusalcache"
	"sluice/internal/problem"
)

// respondCached answers a purchase from the refusal cache, and reports whether it did. It runs before the limits and
// the token verification: a flood on a sold-out sale costs little and uses up no quota.
func (g *Gateway) respondCached(ctx *fasthttp.RequestCtx, x *exchange) bool {
	x.sale = saleID(&ctx.Request.Header, x.path)
	if len(x.sale) == 0 {
		return false
	}
	record, result, scratch := g.refusals.Lookup(g.now(), x.sale, x.Headers.Token(), x.scratch)
	x.scratch = scratch
	switch result {
	case refusalcache.Hit:
		g.writeRecord(ctx, x, record)
		return true
	case refusalcache.Revalidate:
		x.revalidates = record
	}
	return false
}

// saleID returns the id of the sale of a purchase, or nil. It accepts only the plain spelling of the path. Backends
// decide whether another spelling is a purchase.
func saleID(h *fasthttp.RequestHeader, path []byte) []byte {
	id, isSale := bytes.CutPrefix(path, []byte("/v1/sales/"))
	id, isOrders := bytes.CutSuffix(id, []byte("/orders"))
	if !isSale || !isOrders || !h.IsPost() || bytes.IndexByte(id, '/') >= 0 ||
		!bytes.Equal(path, splitTarget(h.RequestURI())) {
		return nil
	}
	return id
}

func (g *Gateway) writeRecord(ctx *fasthttp.RequestCtx, x *exchange, record *refusalcache.Record) {
	x.note(string(record.State), nil, 0)
	g.metrics.byState[record.State].Inc()
	resp := &ctx.Response
	resp.SetStatusCode(record.Status)
	for i := range record.Headers {
		h := &record.Headers[i]
		resp.Header.SetBytesKV(h.Name, h.Value)
	}
	if wait := record.RetryAfterAt(time.Now()); wait > 0 {
		x.scratch = strconv.AppendInt(x.scratch[:0], wait, 10)
		resp.Header.SetBytesV(fasthttp.HeaderRetryAfter, x.scratch)
	}
	resp.SetBodyRaw(record.Body)
}

// updateCache stores or invalidates the refusals of a sale after a purchase was forwarded. sent is when that began, and
// err its error.
func (g *Gateway) updateCache(ctx *fasthttp.RequestCtx, x *exchange, sent int64, err error) {
	status := ctx.Response.StatusCode()
	switch {
	case err != nil:
	case status == fasthttp.StatusAccepted:
		if len(ctx.Response.Header.Peek("Idempotency-Replayed")) == 0 {
			g.refusals.OrderAccepted(g.now(), x.sale)
		}
	case status == fasthttp.StatusConflict && len(x.SaleHint) > 0:
		if hint, ok := refusalcache.ParseSaleHint(x.SaleHint, x.sale); ok {
			if resp, ok := cacheable(&ctx.Response); ok {
				g.refusals.Store(g.now(), sent, string(x.sale), hint, resp)
			}
		}
	}
	// After a server error the buyer may have an order, so the record is not released: later requests of this buyer
	// continue to miss, and no other request revalidates the record with a failing backend.
	if status >= fasthttp.StatusInternalServerError {
		x.revalidates = nil
	}
}

// maxCachedBody is the largest body that is cached, in bytes. Refusals have about 200.
const maxCachedBody = 1 << 10

// cacheable copies a refusal without the headers of the single request. It reports false if another client could have
// received a different response.
func cacheable(resp *fasthttp.Response) (r refusalcache.Response, ok bool) {
	if resp.IsBodyStream() || !bytes.Equal(resp.Header.ContentType(), []byte(problem.ContentType)) {
		return r, false
	}
	body := resp.Body()
	if len(body) == 0 || len(body) > maxCachedBody {
		return r, false
	}
	r.Status = resp.StatusCode()
	for name, value := range resp.Header.All() {
		switch {
		case ascii.EqualFold(name, "content-length"), ascii.EqualFold(name, "date"), ascii.EqualFold(name, "x-request-id"),
			ascii.HasPrefixFold(name, "ratelimit"):
		case ascii.EqualFold(name, "vary"), ascii.EqualFold(name, "set-cookie"), ascii.EqualFold(name, "content-encoding"):
			return r, false
		case ascii.EqualFold(name, "retry-after"):
			seconds, err := strconv.ParseInt(string(value), 10, 32)
			if err != nil || seconds < 1 {
				return r, false
			}
			r.RetryAfter = seconds
		default:
			r.Headers = append(r.Headers, refusalcache.Header{Name: bytes.Clone(name), Value: bytes.Clone(value)})
		}
	}
	r.Body = bytes.Clone(body)
	return r, true
}

// fetchBypassList implements refusalcache.Source.
func (g *Gateway) fetchBypassList(ctx context.Context, sale string) (header string, body io.ReadCloser, err error) {
	resp, err := g.proxy.Fetch(ctx, "/.sluice/sales/"+sale+"/holders")
	if err != nil {
		return "", nil, err
	}
	return resp.Header.Get("Sluice-Holders"), resp.Body, nil
}
