package httpserver_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// The next process takes the path of a Unix socket while this one completes its requests, and keeps it afterwards.
func TestNextProcessTakesTheSocketDuringTheDrain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	ln, err := unixsocket.Claim(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	server := httpserver.New(servertest.Config())
	began, release := make(chan struct{}), make(chan struct{})
	server.Handle(fiber.MethodGet, "/slow", func(c *fiber.Ctx) error {
		close(began)
		<-release
		return c.SendString("ok")
	})
	server.Finish()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, ln) }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := unixsocket.Claim(t.Context(), path); err == nil {
		t.Error("another process takes the path of a server that listens")
	}
	stop()
	var next net.Listener
	testenv.Eventually(t, time.Minute, "the next process listens", func() bool {
		next, err = unixsocket.Claim(t.Context(), path)
		return err == nil
	})
	defer next.Close()
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the request in progress: %v, %v", resp, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the next process has lost its socket: %v", err)
	} else {
		c.Close()
	}
}
