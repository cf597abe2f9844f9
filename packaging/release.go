package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Release describes the artefacts of a commit.
type Release struct {
	Root     string            // the repository
	Out      string            // directory of the artefacts
	Made     string            // directory of intermediate files
	Version  string            // SemVer, without a "v"
	Time     time.Time         // time of every file in the artefacts
	Archs    []string          // of Binaries, in the names of Go
	Binaries map[string]string // by architecture: file of the sluice binary
}

// parts are the parts of a release, in the order in which they are built.
var parts = []struct {
	name string
	do   func(Release, context.Context) error
}{
	{"deb", Release.debs},
	{"chart", Release.chart},
	{"lua", Release.luaPackages},
	{"sbom", Release.sboms},
	{"notes", Release.notes},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// semver matches versions that Helm, LuaRocks, opm and Debian all accept: three numbers, and optionally a suffix such
// as -rc.1.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

func (r Release) check(only []string) error {
	if !semver.MatchString(r.Version) {
		return usage("--version %q: want a version such as 1.2.3 or 1.2.3-rc.1", r.Version)
	}
	for _, name := range only {
		if !slices.Contains(partNames(), name) {
			return usage("--only %q: want %s", name, strings.Join(partNames(), ", "))
		}
	}
	for _, arch := range r.Archs {
		if arch != "amd64" && arch != "arm64" {
			return usage("--arch %q: want amd64 or arm64", arch)
		}
	}
	if len(r.Archs) == 0 {
		return usage("--arch is empty: want amd64, arm64 or both")
	}
	return nil
}

// commitTime returns SOURCE_DATE_EPOCH, or the time of the commit in root.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("git log: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usage("SOURCE_DATE_EPOCH %q: want seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// binaries builds sluice for each architecture, if a part of only needs it.
func (r Release) binaries(ctx context.Context, only []string) (map[string]string, error) {
	built := map[string]string{}
	if len(only) > 0 && !slices.Contains(only, "deb") && !slices.Contains(only, "sbom") {
		return built, nil
	}
	for _, arch := range r.Archs {
		to := filepath.Join(r.Made, "sluice-"+arch)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-pgo=cmd/sluice/release.pgo",
			"-ldflags", "-s -w -X main.version="+r.Version, "-o", to, "./cmd/sluice")
		cmd.Dir = r.Root
		cmd.Env = append(
			os.Environ(),
			"CGO_ENABLED=0",
			"GOOS=linux",
			"GOARCH="+arch,
			"GOFLAGS=",
			"GOAMD64=v1",
			"GOARM64=v8.0",
			"GOWORK=off",
		)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("go build for %s: %w", arch, err)
		}
		built[arch] = to
	}
	return built, nil
}

// Make builds the parts of only, or all parts, and SHA256SUMS. Binaries must exist.
func (r Release) Make(ctx context.Context, only []string) error {
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		if err := p.do(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return r.checksums()
}

// checksums writes SHA256SUMS, which sha256sum --check reads.
func (r Release) checksums() error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return r.write("SHA256SUMS", []byte(sums.String()))
}

// read reads a file of the repository.
func (r Release) read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(r.Root, name)) }

// writeTarGz writes an artefact that is an archive.
func (r Release) writeTarGz(name string, content archive) error {
	packed, err := content.tarGz(r.Time)
	if err != nil {
		return err
	}
	return r.write(name, packed)
}

// write writes an artefact.
func (r Release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.Out, name), data, 0o644)
}
