package proxy

import (
	"bufio"
	"net"
	"testing"

	"github.com/valyala/fasthttp"
)

// A client that disconnects and a drain may end a stream when it is closed already. Its connection must not belong to
// another request then.
func TestConnectionOfAnEventStreamIsNotReused(t *testing.T) {
	for contentType, want := range map[string]int{"application/json": 1, "text/event-stream": 0} {
		p := &Proxy{metrics: newMetrics(nil), draining: t.Context()}
		u := newTestUpstream(t)
		conn, _ := net.Pipe()
		var ctx fasthttp.RequestCtx
		ctx.Response.Header.SetContentType(contentType)
		var r Request
		c := &backendConn{Conn: conn, reader: bufio.NewReader(conn)}
		if err := p.startStream(&ctx, &r, u, c, maxBuffered+1, true); err != nil {
			t.Fatal(err)
		}
		r.stream.left = 0 // the client has the whole body
		_ = r.stream.Close()
		if len(u.idle) != want {
			t.Errorf("%s: %d idle connections, want %d", contentType, len(u.idle), want)
		}
	}
}
