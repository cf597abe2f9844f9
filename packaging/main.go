// Command packaging builds all artefacts of a release: Debian packages of sluice and of its nginx edge, a Helm chart,
// sluice.limit.req as a LuaRocks rock and an opm package, an SBOM for each binary, the release notes and checksums. The
// same commit gives the same bytes in any directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	version := flag.String("version", "", "version of the release, such as 1.2.3; the changelog has a section for it")
	out := flag.String("out", "dist", "directory of the artefacts; it must not exist or be empty")
	only := flag.String(
		"only",
		"",
		"parts to build, separated by commas: "+strings.Join(partNames(), ", ")+" (default: all)",
	)
	archs := flag.String("arch", "amd64,arm64", "architectures of the binaries, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := release(ctx, *version, *out, split(*only), split(*archs))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		if _, ok := errors.AsType[usageError](err); ok {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// usageError is an error in the command line or the changelog.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// release builds the parts of a release in the directory out. It needs Go and git.
func release(ctx context.Context, version, out string, only, archs []string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	r := Release{Root: root, Out: out, Version: version, Archs: archs}
	if err := r.check(only); err != nil {
		return err
	}
	if r.Time, err = commitTime(ctx, root); err != nil {
		return err
	}
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return usage("--out %s is not empty: remove it first", out)
	}
	if r.Made, err = os.MkdirTemp("", "sluice-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.Made)
	if r.Binaries, err = r.binaries(ctx, only); err != nil {
		return err
	}
	return r.Make(ctx, only)
}

// repository returns the directory above this module.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd/sluice/release.pgo")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", usage("the working directory is not in the repository")
		}
	}
}
