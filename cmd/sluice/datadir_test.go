package main

import (
	"context"
	"strings"
	"sync"
	"testing"
)

// An empty file, for example after a failed copy, is no secret: a new one replaces it.
func TestEmptySecretIsReplaced(t *testing.T) {
	d := dataDir(t.TempDir())
	if err := d.write(tokenSecretFile, nil); err != nil {
		t.Fatal(err)
	}
	first, err := d.secret(tokenSecretFile, newSecret)
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := d.secret(tokenSecretFile, newSecret); again != first || err != nil {
		t.Errorf("%q, %v, want %q", again, err, first)
	}
}

// A damaged secret is reported with its file, not with the variable that can replace it.
func TestDamagedSecretIsReportedWithItsFile(t *testing.T) {
	for name, want := range map[string]string{
		tokenSecretFile: " has 7 bytes: ", adminTokenFile: " has 7 bytes: ", vapidFile: ": must be a P-256 private key ",
	} {
		d := dataDir(t.TempDir())
		if err := d.write(name, []byte("damaged")); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := call(t, "up --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data "+string(d))
		if code != exitUsage || !strings.HasPrefix(stderr, "sluice: "+d.path(name)+want) ||
			strings.Contains(stderr, "SLUICE") {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// A data directory that another user owns, or a damaged file in it, is not reported as one that was never used.
func TestUnreadableServerIsReported(t *testing.T) {
	d := dataDir(t.TempDir())
	for text, fault := range map[string]string{"{": "unexpected end of JSON input", "{}": "an address is missing"} {
		if err := d.write(serverFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"sale list", "health"} {
			code, _, stderr := sluice(t, map[string]string{envData: string(d)}, strings.Fields(args)...)
			want := "sluice: --data: " + d.path(serverFile) + ": " + fault + ": start sluice up again\n"
			if code != exitUsage || stderr != want {
				t.Errorf("%s: sluice %s: exit %d, %q, want %q", text, args, code, stderr, want)
			}
		}
	}
}

// sluice health reads the lock of a directory. It must not prevent the start of sluice up.
func TestDirectoryIsOpenedDuringHealthChecks(t *testing.T) {
	d := dataDir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	var checks sync.WaitGroup
	checks.Go(func() {
		for ctx.Err() == nil {
			d.use()
		}
	})
	defer checks.Wait()
	defer stop()
	for range 1000 {
		unlock, err := d.open()
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
}
