package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	debianDir = flag.String("debian", "",
		"directory of a Debian system, created if it does not exist: install the packages there")
	inside = flag.Bool("inside", false, "this process is a service of that system")
)

// debianPackages are the dependencies of sluice's packages, and the stores.
const debianPackages = "systemd,systemd-sysv,dbus,redis-server,postgresql,nginx-light,libnginx-mod-http-lua,ca-certificates," +
	"man-db,bash-completion,logrotate,procps"

// The packages run on a fresh Debian with its own systemd, as whose service TestInside runs. `make packages` runs this;
// it needs root, debootstrap and systemd-nspawn.
func TestDebian(t *testing.T) {
	if *debianDir == "" {
		t.Skip("needs -debian: see make packages")
	}
	root := filepath.Join(*debianDir, "root")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/psql")); err != nil {
		output(t, "debootstrap", "--variant=minbase", "--include="+debianPackages, "bookworm", root,
			"http://deb.debian.org/debian")
	}
	proof := t.TempDir()
	for _, version := range []string{"1.0.0", "1.0.1"} {
		r := testRelease(t, version, filepath.Join(proof, version))
		r.Archs = []string{goArch(t)}
		binary := filepath.Join(t.TempDir(), "sluice")
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version,
			"-o", binary, "./cmd/sluice")
		build.Dir, build.Env = r.Root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		r.Binaries = map[string]string{r.Archs[0]: binary}
		if err := r.Make(t.Context(), []string{"deb"}); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(proof, "inside.test")
	output(t, "go", "test", "-c", "-o", self, ".")
	unit := `[Unit]
Description=Test of the packages
After=multi-user.target
[Service]
Type=oneshot
Environment=HOME=/root
WorkingDirectory=/proof
ExecStart=/proof/inside.test -test.v -test.timeout=8m -test.run=^TestInside$ -inside
StandardOutput=file:/proof/log
StandardError=file:/proof/log
ExecStopPost=/bin/sh -c 'echo "$EXIT_STATUS" >/proof/status'
ExecStopPost=systemctl --no-block poweroff
`
	if err := os.WriteFile(filepath.Join(proof, "proof.service"), []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	// The overlay in memory leaves the system in -debian unchanged. A network namespace keeps the ports free.
	boot := exec.CommandContext(t.Context(), "systemd-nspawn", "--directory="+root, "--volatile=overlay", "--register=no",
		"--keep-unit", "--private-network", "--bind="+proof+":/proof", "--console=pipe", "--boot",
		"--bind-ro="+filepath.Join(proof, "proof.service")+":/etc/systemd/system/proof.service",
		"systemd.wants=proof.service")
	var console bytes.Buffer
	boot.Stdout, boot.Stderr = &console, &console
	err := boot.Run()
	log, _ := os.ReadFile(filepath.Join(proof, "log"))
	t.Logf("%s", log)
	if status, _ := os.ReadFile(filepath.Join(proof, "status")); strings.TrimSpace(string(status)) != "0" {
		t.Errorf("the test inside failed: status %q, systemd-nspawn: %v\n%s", status, err, console.Bytes())
	}
}

func goArch(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(output(t, "go", "env", "GOARCH"))
}
