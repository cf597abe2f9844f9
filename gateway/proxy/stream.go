package proxy

import (
	"context"
	"io"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
)

// stream is a response body that is passed on as it arrives. It owns the backend connection until it is closed.
type stream struct {
	upstream *upstream
	conn     *backendConn
	body     io.Reader
	left     int64         // remaining bytes; -1 if unknown
	silence  time.Duration // limit between two parts of the body
	reuse    bool
	sent     int64            // bytes passed on
	onClose  func()           // of an event stream; may be nil
	onEnd    func(sent int64) // may be nil
	closed   bool
	ended    atomic.Bool // by the edge
}

// maxHTTP10 is the largest body of unknown length, in bytes, that is buffered for an HTTP/1.0 client.
const maxHTTP10 = 1 << 20

// startStream makes the response stream its body. length is that of fasthttp: -1 means chunked, -2 until the
// connection closes.
func (p *Proxy) startStream(ctx *fasthttp.RequestCtx, r *Request, u *upstream, c *backendConn, length int,
	reuse bool) error {
	events := ascii.HasPrefixFold(ctx.Response.Header.ContentType(), "text/event-stream")
	s := &stream{upstream: u, conn: c, body: c.reader, left: int64(max(length, -1)), silence: p.config.SilenceTimeout,
		reuse: reuse && length >= 0 && !events} // end may still be called when an event stream is closed
	switch {
	case length >= 0:
		s.body = io.LimitReader(c.reader, s.left)
	case length == -1:
		s.body = httputil.NewChunkedReader(c.reader)
	}
	if length < 0 && !ctx.Request.Header.IsHTTP11() {
		return s.buffer(ctx, r, events)
	}
	if events {
		p.metrics.streams.Inc()
		stop := context.AfterFunc(p.draining, s.end)
		s.onClose = func() {
			stop()
			p.metrics.streams.Dec()
		}
		// onDisconnect discards further input of the client, so the connection cannot be reused.
		ctx.Response.SetConnectionClose()
		if client, ok := ctx.Conn().(*Conn); ok {
			client.onDisconnect(s.end)
		}
	}
	r.stream = s
	ctx.Response.ImmediateHeaderFlush = true
	ctx.Response.SetBodyStream(s, max(length, -1))
	return nil
}

// buffer reads the whole body for an HTTP/1.0 client, which does not support chunks. If that is impossible it sets
// r.http10, and returns no error: the backend has not failed, and must not be considered down because of such
// clients.
func (s *stream) buffer(ctx *fasthttp.RequestCtx, r *Request, events bool) error {
	defer s.Close()
	if !events {
		body, err := io.ReadAll(io.LimitReader(s, maxHTTP10+1))
		if err != nil {
			return errInvalid
		}
		if len(body) <= maxHTTP10 {
			ctx.Response.SetBodyRaw(body)
			return nil
		}
	}
	r.http10 = true
	return nil
}

// Read implements io.Reader for fasthttp.
func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(s.silence)); err != nil {
		return 0, s.readError(err)
	}
	if s.ended.Load() { // the line above may have overwritten the deadline that end has set
		return 0, io.EOF
	}
	n, err := s.body.Read(p)
	s.sent += int64(n)
	if s.left > 0 {
		s.left -= int64(n)
		if err == io.EOF && s.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, s.readError(err)
}

// readError returns io.EOF if the edge has ended the stream, so that the client receives a proper last chunk.
func (s *stream) readError(err error) error {
	if err != nil && s.ended.Load() {
		return io.EOF
	}
	return err
}

// end ends the stream early. Safe for concurrent use.
func (s *stream) end() {
	s.ended.Store(true)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

// Close implements io.Closer. fasthttp calls it when the body has been sent, or cannot be.
func (s *stream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.onClose != nil {
		s.onClose()
	}
	if s.onEnd != nil {
		s.onEnd(s.sent)
	}
	s.upstream.release(s.conn, s.reuse && s.left == 0)
	return nil
}
