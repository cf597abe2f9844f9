package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The rate limiter is installed from each artefact, and passes its tests from there.
func TestInstalledLimiterKeepsBound(t *testing.T) {
	r := testRelease(t, "0.1.0", t.TempDir())
	rock := filepath.Join(r.Out, "lua-sluice-limit-0.1.0-1.src.rock")
	opm := filepath.Join(r.Out, "lua-sluice-limit-0.1.0.opm.tar.gz")
	if *releaseDir != "" {
		rock, opm = artefact(t, "lua-sluice-limit-*.src.rock"), artefact(t, "lua-sluice-limit-*.opm.tar.gz")
	} else if err := r.Make(t.Context(), []string{"lua"}); err != nil {
		t.Fatal(err)
	}
	tree, dir := t.TempDir(), t.TempDir()
	output(t, "luarocks", "--lua-version", "5.1", "--tree", tree, "install", "--deps-mode=none", rock)
	unpack(t, opm, dir)
	lib := filepath.Join(dir, strings.TrimSuffix(filepath.Base(opm), ".tar.gz"), "lib/?.lua")
	for name, path := range map[string]string{"rock": tree + "/share/lua/5.1/?.lua", "opm": lib} {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-v",
			"-run", "^(TestLimiterReplacesRestyLimitReq|TestLimiterAgreesWithRestyLimitReq|TestLimiterLoadsDocumentedFiles)$",
			"./nginx")
		cmd.Dir, cmd.Env = r.Root, append(os.Environ(), "SLUICE_TEST_LUA_PATH="+path)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "--- PASS") != 3 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// unpack extracts an archive as opm does, and checks its dist.ini.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r, ini := tar.NewReader(z), false; ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			if !ini {
				t.Error("the opm package has no dist.ini")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, "/dist.ini") {
			version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archive), "lua-sluice-limit-"), ".opm.tar.gz")
			ini = strings.Contains(string(text), "\nversion = "+version+"\n") &&
				strings.Contains(string(text), "\nmain_module = lib/sluice/limit/req.lua\n")
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // workers of nginx read it
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil { //nolint:gosec // workers of nginx read it
			t.Fatal(err)
		}
	}
}
