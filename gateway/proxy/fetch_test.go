package proxy

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestFetchOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+r.URL.Path)
	})}
	go func() { _ = server.Serve(ln) }()
	p, err := New(Config{
		Upstreams: []string{"unix:" + path}, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.Fetch(t.Context(), "/list")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "localhost/list" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	server.Close()
	if _, err := p.Fetch(t.Context(), "/list"); err == nil || !strings.Contains(err.Error(), "unix:"+path) {
		t.Errorf("without a backend: %v", err)
	}
}
