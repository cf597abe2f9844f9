package token

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// File is a set of keys that follows a file. Verify and VerifyUntil are safe for concurrent use, also with Reload; the zero value is not usable.
type File struct {
	path, secret string
	now          func() time.Time
	set          atomic.Pointer[Set]
	seen         fileState // by one goroutine at a time
}

type fileState struct {
	modified time.Time
	size     int64
	missing  bool
}

// Open makes a set from a JWK Set file, a secret, which is the HS256 key without a kid, or both: whichever is not empty. One of them must be given.
// The error is one line that names the file.
func Open(path, secret string) (*File, error) { return OpenAt(path, secret, time.Now) }

// OpenAt is Open with a clock of the caller's.
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
		f.seen = f.state() // before it is read, so that a write in between is seen as a change
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

// ReadFile is a file of keys as text, when it is not longer than one may be.
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

// Reload reads the file again if it has changed. When what it holds is bad, the old keys stay, and the error is told once. Call it from one goroutine
// at a time.
func (f *File) Reload() (changed bool, err error) {
	if f.path == "" || f.state() == f.seen {
		return false, nil
	}
	if err := f.read(); err != nil {
		return false, err
	}
	return true, nil
}

// Set is the set of now. A set that was got before verifies with the keys of then.
func (f *File) Set() *Set { return f.set.Load() }

// Verify is Set.Verify with the keys of now.
func (f *File) Verify(raw string) (sub string, err error) { return f.Set().Verify(raw) }

// VerifyUntil is Set.VerifyUntil with the keys of now.
func (f *File) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	return f.Set().VerifyUntil(raw)
}
