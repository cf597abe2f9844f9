package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/spf13/cobra"
)

// debs builds the package sluice for each architecture, and sluice-edge.
func (r Release) debs(context.Context) error {
	if err := r.generated(); err != nil {
		return err
	}
	for _, arch := range r.Archs {
		if err := r.deb("sluice", arch); err != nil {
			return err
		}
	}
	return r.deb("sluice-edge", "all")
}

// debVersion returns a version in Debian's order, in which 1.0.0~rc.1 is before 1.0.0.
func debVersion(version string) string { return strings.Replace(version, "-", "~", 1) }

func (r Release) deb(name, arch string) error {
	config, err := r.read("packaging/debian/" + name + ".yaml")
	if err != nil {
		return err
	}
	values := map[string]string{
		"ROOT": r.Root, "MADE": r.Made, "VERSION": r.Version, "DEBVERSION": debVersion(r.Version), "ARCH": arch,
		"BINARY": r.Binaries[arch],
	}
	// Expanded here, because nfpm does not expand every field.
	text := os.Expand(string(config), func(name string) string { return values[name] })
	parsed, err := nfpm.ParseWithEnvMapping(strings.NewReader(text), func(string) string { return "" })
	if err != nil {
		return fmt.Errorf("%s.yaml: %w", name, err)
	}
	info, err := parsed.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	info.MTime = r.Time
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return fmt.Errorf("%s.yaml: %w", name, err)
	}
	for _, c := range info.Contents {
		c.FileInfo.MTime = r.Time
		if strings.HasPrefix(c.Destination, "/usr/share/") { // of a tree: the modes of the checkout depend on its umask
			c.FileInfo.Mode = 0o644
			if c.Type == files.TypeDir || c.Type == files.TypeImplicitDir {
				c.FileInfo.Mode = 0o755
			}
		}
	}
	var file bytes.Buffer
	if err := packager.Package(info, &file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.write(packager.ConventionalFileName(info), file.Bytes())
}

// generated writes man pages, completions, copyright and changelog into Made.
func (r Release) generated() error {
	reference, err := r.read("docs/commands.md")
	if err != nil {
		return err
	}
	for name, page := range manPages(string(reference), r.Version, r.Time) {
		if err := r.intermediate("man/"+name+".1.gz", compressed(page, r.Time)); err != nil {
			return err
		}
	}
	// The scripts call the binary for everything but its name, so they need no other command here.
	root := &cobra.Command{Use: "sluice"}
	for name, generate := range map[string]func(*bytes.Buffer) error{
		"sluice.bash": func(w *bytes.Buffer) error { return root.GenBashCompletionV2(w, true) },
		"_sluice":     func(w *bytes.Buffer) error { return root.GenZshCompletion(w) },
		"sluice.fish": func(w *bytes.Buffer) error { return root.GenFishCompletion(w, true) },
	} {
		var script bytes.Buffer
		if err := generate(&script); err != nil {
			return err
		}
		if err := r.intermediate("completions/"+name, script.Bytes()); err != nil {
			return err
		}
	}
	copyright, err := r.read("packaging/debian/copyright")
	if err != nil {
		return err
	}
	log, err := r.read("CHANGELOG.md")
	if err != nil {
		return err
	}
	if err := r.intermediate("copyright", copyright); err != nil {
		return err
	}
	return r.intermediate("changelog.gz", compressed(log, r.Time))
}

func (r Release) intermediate(name string, data []byte) error {
	path := filepath.Join(r.Made, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// compressed returns data as gzip, without a name.
func compressed(data []byte, at time.Time) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	w.ModTime = at
	_, _ = w.Write(data) // to memory
	_ = w.Close()
	return out.Bytes()
}
