package proxy

import (
	"time"

	"github.com/valyala/fasthttp"
)

const (
	maxBuffered = 64 << 10 // bytes of a response body; longer ones are streamed
	maxInterim  = 8        // 1xx responses before the final one
)

// exchange sends the request over one connection and fills the response. It returns the connection to the pool,
// closes it, or passes it to the response's stream.
func (p *Proxy) exchange(ctx *fasthttp.RequestCtx, r *Request, u *upstream, c *backendConn) error {
	err := p.send(ctx, r, c)
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
func (p *Proxy) send(ctx *fasthttp.RequestCtx, r *Request, c *backendConn) error {
	if err := c.SetDeadline(time.Now().Add(r.Timeout)); err != nil {
		return errBroken
	}
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
