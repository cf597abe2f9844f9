package httpserver_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/backend/web/httpserver"
)

// A client that is still sending reads why its request was rejected, over TCP and over a Unix socket.
func TestRejectedClientReadsTheResponse(t *testing.T) {
	for network, address := range map[string]string{
		"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "a.sock"),
	} {
		ln, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- newServer(httpserver.Config{}).Serve(ctx, ln) }()
		c, err := net.Dial(network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		const size = 1 << 20 // more than the buffers of the connection and the server
		head := "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n"
		if _, err := c.Write([]byte(head + strings.Repeat("x", size))); err != nil {
			t.Errorf("%s: the server does not read the rest of the request: %v", network, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %v, %v", network, resp, err)
		}
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: Serve: %v", network, err)
		}
	}
}
