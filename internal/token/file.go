package token

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// File is a set of keys that can be reloaded from a file. Create it with Open. Verify and VerifyUntil are safe for
// concurrent use, also with Reload.
type File struct {
	path, secret string
	now          func() time.Time
	set          atomic.Pointer[Set]
	seen         fileState // used by Reload only
}

type fileState struct {
	modified time.Time
	size     int64
	missing  bool
}

// Open returns the keys of a JWK Set file, of a secret, or of both. The secret is the HS256 key without a kid. Empty
// arguments are ignored, but one of them is required. The error is a single line that names the file.
func Open(path, secret string) (*File, error) { return OpenAt(path, secret, time.Now) }

// OpenAt is Open with a custom clock.
func OpenAt(path, secret string, now func() time.Time) (*File, error) {
	f := &File{path: path, secret: secret, now: now}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) read() error {
	var keys []*jwk
	if f.path != "" {
		f.seen = f.state() // before the read, so that a concurrent write is detected as a change
		text, err := ReadFile(f.path)
		if err != nil {
			return err
		}
		if keys, err = parseKeys(text); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	set, err := newSet(f.secret, keys, f.now)
	if err != nil {
		return err
	}
	f.set.Store(set)
	return nil
}

// ReadFile returns the text of a key file, of which it reads at most one byte more than is allowed.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	return text, nil
}

func (f *File) state() fileState {
	info, err := os.Stat(f.path)
	if err != nil {
		return fileState{missing: true}
	}
	return fileState{modified: info.ModTime(), size: info.Size()}
}

// Reload reads the file again if it has changed. If it is invalid, the previous keys stay in use, and the error is
// returned once. Not safe for concurrent calls.
func (f *File) Reload() (changed bool, err error) {
	if f.path == "" || f.state() == f.seen {
		return false, nil
	}
	if err := f.read(); err != nil {
		return false, err
	}
	return true, nil
}

// Set returns the current keys. Reload does not change sets that were returned before.
func (f *File) Set() *Set { return f.set.Load() }

// Verify is Set.Verify with the current keys.
func (f *File) Verify(raw string) (sub string, err error) { return f.Set().Verify(raw) }

// VerifyUntil is Set.VerifyUntil with the current keys.
func (f *File) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	return f.Set().VerifyUntil(raw)
}
