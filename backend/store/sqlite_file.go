package store

import (
	"cmp"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sqlitePath returns the path in sqlite:///abs/path.db, sqlite:/abs/path.db or sqlite:rel/path.db. Special characters
// are percent-encoded.
func sqlitePath(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	path := ""
	if err == nil {
		path, err = url.PathUnescape(cmp.Or(u.Opaque, u.EscapedPath()))
	}
	switch {
	case err != nil:
		return "", &URLError{"is not a URL; percent-encode special characters (%XX)"}
	case u.Host != "" || u.User != nil:
		return "", &URLError{"an absolute SQLite path needs three slashes (sqlite:///var/lib/orders.db), " +
			"a relative one none (sqlite:orders.db)"}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &URLError{"a SQLite URL takes no parameters"}
	case path == "" || strings.HasSuffix(path, "/"):
		return "", &URLError{"a SQLite URL must name a file"}
	case path == ":memory:":
		return "", &URLError{"SQLite needs a file: a database in memory would lose accepted orders"}
	}
	return path, nil
}

// openOrCreate opens a file, and creates it if needed. It holds the names of buyers, so only its owner may read it. An
// error that an admin has to remove is a *URLError.
func openOrCreate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &URLError{"the directory " + filepath.Dir(path) + " does not exist: create it, or name another file"}
	case errors.Is(err, fs.ErrPermission):
		return nil, &URLError{"no permission to write to " + path + ": change its owner, or name another file"}
	case errors.Is(err, syscall.EROFS):
		return nil, &URLError{path + " is in a read-only file system: name a file elsewhere"}
	case errors.Is(err, syscall.EISDIR):
		return nil, &URLError{path + " is a directory: name a file"}
	}
	return nil, unavailable(err)
}

// minFree is the space, in bytes, below which the disk of SQLite counts as full: the size to which its write-ahead log
// usually grows.
const minFree = 4 << 20

// checkFile returns ErrFull if the disk of a database file is full, and another error if the file does not exist or
// cannot be written.
func checkFile(path string) error {
	var disk unix.Statfs_t
	err := cmp.Or(unix.Access(path, unix.W_OK), unix.Statfs(path, &disk))
	switch {
	case err != nil:
		return unavailable(&fs.PathError{Op: "write", Path: path, Err: err})
	case disk.Bavail*uint64(disk.Bsize) < minFree:
		return ErrFull
	}
	return nil
}

// lockFile locks the file beside a database for this process until the returned file is closed. The lock ends with the
// process.
func lockFile(path string) (*os.File, error) {
	f, err := openOrCreate(path + ".lock")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, &URLError{path + " is in use by another sluice with a Redis of its own: stop it, name another file, " +
			"or use one Redis for both (--redis)"}
	}
	return f, nil
}
