package assemble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

func TestBackendReloadsChangedKeys(t *testing.T) {
	first, old := tokentest.Generate(t, token.HS256, "k1")
	second, next := tokentest.Generate(t, token.HS256, "second")
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, first, 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := token.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var log bytes.Buffer
	b := &Backend{cfg: BackendConfig{Tokens: keys}, log: slog.New(slog.NewTextHandler(&log, nil))}
	go func() { done <- b.followKeys(ctx) }()
	if err := errors.Join(os.WriteFile(path+".new", second, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 5*time.Second, "the new key is known", func() bool {
		_, err := keys.Verify(next)
		return err == nil
	})
	if _, err := keys.Verify(old); err == nil {
		t.Error("the old key is still accepted")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "HS256 second") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestConsumerNameHasHostAndProcess(t *testing.T) {
	names := consumerNames()
	a, b := names(), names()
	if owner := fmt.Sprintf("-%d-", os.Getpid()); a == b || !strings.Contains(a, owner) || !strings.Contains(b, owner) {
		t.Errorf("%q and %q: want two names with %q", a, b, owner)
	}
	if strings.ContainsAny(a, "{} ") {
		t.Errorf("%q does not fit into a Redis key", a)
	}
}
