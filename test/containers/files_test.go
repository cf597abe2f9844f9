package containers

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/test/testenv"
)

// files writes the contents of an image as an archive.
type files struct {
	t       *testing.T
	out     *tar.Writer
	written map[string]bool
}

func (f *files) add(header tar.Header, content io.Reader) {
	f.t.Helper()
	header.Name = strings.TrimPrefix(header.Name, "/")
	if f.written[header.Name] {
		return
	}
	f.written[header.Name] = true
	if err := f.out.WriteHeader(&header); err != nil {
		f.t.Fatal(err)
	}
	if content != nil {
		if _, err := io.Copy(f.out, content); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *files) text(name, text string, mode int64) {
	f.add(tar.Header{Name: name, Mode: mode, Size: int64(len(text))}, strings.NewReader(text))
}

// directory adds an empty directory with an owner; mode is as for chmod.
func (f *files) directory(name string, user, group int, mode int64) {
	f.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: user, Gid: group}, nil)
}

func (f *files) link(name, target string) {
	f.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

// copy adds a file of this machine under a name, with the libraries that it is linked with.
func (f *files) copy(name, source string) {
	f.t.Helper()
	in, err := os.Open(source)
	if err != nil {
		f.t.Fatal(err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		f.t.Fatal(err)
	}
	f.add(tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}, in)
	if info.Mode()&0o111 == 0 && !strings.Contains(name, ".so") {
		return
	}
	for _, library := range libraries(f.t, source) {
		f.copy(library, library)
	}
}

var loaded = regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+) \(0x`)

// libraries returns the files that the loader would load for a program or a library; none for a script or a static
// program.
func libraries(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", path).Output()
	if err != nil {
		return nil
	}
	var all []string
	for _, m := range loaded.FindAllSubmatch(out, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// program adds a program of this machine at its path. Patterns are further places to search, in addition to PATH.
func (f *files) program(name, debianPackage string, patterns ...string) {
	f.t.Helper()
	path := testenv.Find(f.t, name, debianPackage, patterns...)
	f.copy(path, path)
}

// tree adds a directory of this machine with its contents as the directory name. Links are replaced by their files.
func (f *files) tree(name, source string) {
	f.t.Helper()
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() {
			f.copy(name+strings.TrimPrefix(path, source), path)
		}
		return nil // a broken link, or one to a directory, is left out
	})
	if err != nil {
		f.t.Fatal(err)
	}
}
