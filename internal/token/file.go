package token

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"sluice/internal/reload"
)

// File is a set of keys that can be reloaded from a file. Create it with Open. Verify and VerifyUntil are safe for
// concurrent use, also with Reload.
type File struct {
	path, secret string
	options      Options
	set          atomic.Pointer[Set]
	detector     reload.Detector
}

// Options of OpenWith. The zero value is that of Open.
type Options struct {
	Now   func() time.Time // default time.Now
	Cache int              // tokens to cache, a power of two; default: 16,384, and none of those signed with a secret
}

// Open returns the keys of a JWK Set file, of a secret, or of both. The secret is the HS256 key without a kid. Empty
// arguments are ignored, but one of them is required. The error is a single line that names the file.
func Open(path, secret string) (*File, error) { return OpenWith(path, secret, Options{}) }

// OpenWith is Open with options.
func OpenWith(path, secret string, options Options) (*File, error) {
	f := &File{path: path, secret: secret, options: options}
	if path != "" {
		_, err := f.Reload()
		return f, err
	}
	return f, f.use(nil)
}

func (f *File) use(keys []*jwk) error {
	set, err := newSet(f.secret, keys, f.options)
	if err == nil {
		f.set.Store(set)
	}
	return err
}

// ReadFile returns the text of a key file, of which it reads at most one byte more than is allowed.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// Reload reads the file again if it has changed. If it is invalid, the previous keys stay in use, and the error is
// returned once. Not safe for concurrent calls.
func (f *File) Reload() (changed bool, err error) {
	if f.path == "" {
		return false, nil
	}
	text, err := ReadFile(f.path)
	if !f.detector.Changed(text, err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.path, err)
	}
	err = f.use(keys)
	return err == nil, err
}

// Set returns the current keys. Reload does not change sets that were returned before.
func (f *File) Set() *Set { return f.set.Load() }

// Verify is Set.Verify with the current keys.
func (f *File) Verify(raw string) (sub string, err error) { return f.Set().Verify(raw) }

// VerifyUntil is Set.VerifyUntil with the current keys.
func (f *File) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	return f.Set().VerifyUntil(raw)
}

// Cached is Set.Cached with the current keys.
func (f *File) Cached(raw string) (sub string, ok bool) { return f.Set().Cached(raw) }
