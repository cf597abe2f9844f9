package gateway

import (
	"io"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// stream is a response body that is passed on as it comes. It owns its backend's connection until it is closed.
type stream struct {
	upstream *upstream
	conn     *backendConn
	body     io.Reader
	left     int64         // bytes to come; -1 when only the backend knows
	patience time.Duration // the longest silence of the backend
	reuse    bool
	onClose  func()
	sent     int64            // bytes passed on
	after    func(sent int64) // what is to be done when it has ended; may be nil
	closed   bool
	ended    atomic.Bool // by the edge
}

// stream makes the response pass its body on as it comes. length is that of fasthttp: -1 is chunked, -2 is until the backend closes.
func (x *exchange) stream(ctx *fasthttp.RequestCtx, u *upstream, c *backendConn, length int, reuse bool) error {
	g := x.gateway
	s := &stream{upstream: u, conn: c, body: c.reader, left: int64(max(length, -1)), patience: g.timeouts.silence, reuse: reuse && length >= 0}
	switch {
	case length >= 0:
		s.body = io.LimitReader(c.reader, s.left)
	case length == -1:
		s.body = httputil.NewChunkedReader(c.reader)
	}
	events := isEvents(ctx.Response.Header.ContentType())
	if length < 0 && !ctx.Request.Header.IsHTTP11() {
		return s.whole(ctx, events)
	}
	if events {
		g.streams.add(s)
		// The connection is watched for the client's leaving, which eats what else the client may send: it cannot be used again.
		ctx.Response.SetConnectionClose()
		if client, ok := ctx.Conn().(*conn); ok {
			client.watch(s.end)
		}
	}
	x.streaming = s
	ctx.Response.ImmediateHeaderFlush = true
	ctx.Response.SetBodyStream(s, max(length, -1))
	return nil
}

// whole is for a client of HTTP/1.0, which knows no chunks: the body is read to its end first, if it has one. That such a client cannot be given an
// answer is no failure of the backend: it must not count as one, or a few such clients would take the backend from all others.
func (s *stream) whole(ctx *fasthttp.RequestCtx, events bool) error {
	defer s.Close()
	const most = 1 << 20
	if !events {
		body, err := io.ReadAll(io.LimitReader(s, most+1))
		if err != nil {
			return errGarbled
		}
		if len(body) <= most {
			ctx.Response.SetBodyRaw(body)
			return nil
		}
	}
	ctx.Response.Reset()
	ctx.Response.Header.DisableNormalizing()
	answer(ctx, fasthttp.StatusBadRequest, bodyBadRequest)
	return nil
}

func (s *stream) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	s.conn.until = 0
	if err := s.conn.SetReadDeadline(time.Now().Add(s.patience)); err != nil {
		return 0, s.why(err)
	}
	if s.ended.Load() { // and the deadline of end was just overwritten
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
	return n, s.why(err)
}

// why is the end of the body when it was the edge that ended it: then the client gets a proper last chunk.
func (s *stream) why(err error) error {
	if err != nil && s.ended.Load() {
		return io.EOF
	}
	return err
}

// end ends the stream early, from any goroutine.
func (s *stream) end() {
	s.ended.Store(true)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

// Close is called by fasthttp when the body has been written, or cannot be.
func (s *stream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.onClose != nil {
		s.onClose()
	}
	if s.after != nil {
		s.after(s.sent)
	}
	if s.reuse && s.left == 0 && s.conn.reader.Buffered() == 0 {
		s.upstream.put(s.conn)
		return nil
	}
	return s.conn.Close()
}

func isEvents(contentType []byte) bool { return hasFoldedPrefix(contentType, "text/event-stream") }

// streams are the event streams that are open. They last for hours, so a shutdown must end them.
type streams struct {
	mu      sync.Mutex
	open    map[*stream]struct{}
	ending  bool
	counted func(int)
}

func (ss *streams) add(s *stream) {
	s.onClose = func() {
		ss.mu.Lock()
		delete(ss.open, s)
		ss.counted(len(ss.open))
		ss.mu.Unlock()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.open == nil {
		ss.open = map[*stream]struct{}{}
	}
	ss.open[s] = struct{}{}
	ss.counted(len(ss.open))
	if ss.ending {
		s.end()
	}
}

func (ss *streams) endAll() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.ending = true
	for s := range ss.open {
		s.end()
	}
}
