package mirror_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/mirror"
	"sluice/internal/token/tokentest"
)

// A connection is answered after the file has the newest keys, with the time until the next fetch is permitted.
func TestConnectionIsAnsweredAfterAFetch(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	keys, err := token.Open(p.Serve(t), "")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := keys.Await(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	m, err := mirror.New(keys, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	kids := func() string {
		t.Helper()
		file, err := token.Open(m.File(), "")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(file.Set().Names(), ", ")
	}
	request := func() string {
		t.Helper()
		conn, err := net.Dial("unix", m.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := kids(); got != "EdDSA first" {
		t.Errorf("at first: %s", got)
	}
	p.Rotate("second")
	if got := request(); got != "0\n" {
		t.Errorf("the first answer: %q", got)
	}
	if got := kids(); got != "EdDSA first, EdDSA second" {
		t.Errorf("after a request: %s", got)
	}
	var last string
	for range 5 {
		last = request()
	}
	if last == "0\n" || p.Fetches() > 4+1 {
		t.Errorf("the last answer is %q, after %d fetches", last, p.Fetches())
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	m.Close()
	if _, err := os.Stat(m.File()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}
