package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"sluice/internal/loop"
	"sluice/internal/reload"
)

// Keys is a set of keys that follows a file or a URL. Create it with Open. Verify and VerifyUntil are safe for
// concurrent use, also with Follow.
type Keys struct {
	path, secret string
	remote       *remote // nil unless path is a URL
	options      Options
	set          atomic.Pointer[Set]
	detector     reload.Detector // of the file
	fetched      string          // the set in use, if it is from a URL
}

// Options of Open. The zero value is usual.
type Options struct {
	Now func() time.Time // default time.Now
	Expect
	Cache int // tokens to cache, a power of two; default: 16,384, without tokens that are signed with a secret

	Transport http.RoundTripper // for a URL; default: one with the certificates and the proxy of the environment
}

// Open returns the keys of a JWK Set, of a secret, or of both. path is a file or a URL; the keys of a URL are fetched
// by Await. The secret is the HS256 key without a kid. Empty arguments are ignored, but one of them is required. The
// error is a single line that names the file.
func Open(path, secret string, options Options) (*Keys, error) {
	k := &Keys{path: path, secret: secret, options: options}
	var err error
	switch {
	case path == "":
		err = k.use(nil, nil)
	case IsURL(path):
		if k.remote, err = newRemote(path, options.Transport); err == nil {
			err = k.use([]*jwk{}, nil)
		}
	default:
		_, err = k.Reload()
	}
	return k, err
}

func (k *Keys) use(keys []*jwk, skipped []string) error {
	set, err := newSet(k.secret, keys, k.options)
	if err == nil {
		set.skipped = skipped
		k.set.Store(set)
	}
	return err
}

// ReadFile returns the text of a key file. It reads at most one byte more than the size limit.
func ReadFile(path string) ([]byte, error) {
	if IsURL(path) {
		return nil, fmt.Errorf("%s is a URL: want a file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// Reload reads the file again if it has changed, except a pipe, which Open has read. If it is invalid, the previous
// keys stay in use, and the error is returned once. Not safe for concurrent calls. Follow calls it.
func (k *Keys) Reload() (changed bool, err error) {
	if k.path == "" || k.remote != nil || k.set.Load() != nil && reload.IsPipe(k.path) {
		return false, nil
	}
	text, err := ReadFile(k.path)
	if !k.detector.Changed(text, err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	keys, skipped, err := parseKeys(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w", k.path, err)
	}
	err = k.use(keys, skipped)
	return err == nil, err
}

// Await fetches the first set of a URL. It retries for half a minute, logs the first error, and returns the last one.
// Without a URL, the keys were loaded by Open. In both cases Await logs the warnings of Set.Warn.
func (k *Keys) Await(ctx context.Context, log *slog.Logger) error {
	if k.remote != nil {
		if err := k.awaitRemote(ctx, log); err != nil {
			return err
		}
		log.Info("token keys fetched", "keys", k.Set().Names())
	}
	k.Set().Warn(log)
	return nil
}

func (k *Keys) awaitRemote(ctx context.Context, log *slog.Logger) error {
	limited, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	last := errors.New("no attempt has ended")
	if loop.Retry(limited, log, "fetching the token keys", func() error {
		err := k.remote.once(limited, k.useFetched)
		if limited.Err() == nil {
			last = err
		}
		return err
	}) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("no token keys within %s: %w", startWait, last)
}

// fileEvery is how often Follow reads the file.
const fileEvery = time.Second

// Follow keeps the keys current until ctx ends. It calls report(nil) after a change and after a recovery, and
// report(err) when the source cannot be used: for a file once until it changes, for a URL after each failed fetch. The
// previous keys stay in use meanwhile.
func (k *Keys) Follow(ctx context.Context, report func(error)) {
	switch {
	case k.path == "":
	case k.remote != nil:
		failing := false
		k.remote.run(ctx, func(text []byte, err error) error {
			before := k.Set()
			err = k.useFetched(text, err)
			if err != nil || failing || k.Set() != before {
				report(err)
			}
			failing = err != nil
			return err
		})
	default:
		for range loop.Ticks(ctx, fileEvery) {
			if changed, err := k.Reload(); changed || err != nil {
				report(err)
			}
		}
	}
}

// LogChange logs what Follow reports: a change of the keys, with the warnings of Set.Warn, or an error.
func (k *Keys) LogChange(log *slog.Logger, err error) {
	if err != nil {
		log.Error("token keys are invalid, keeping the previous ones", "err", err)
		return
	}
	log.Info("token keys reloaded", "keys", k.Set().Names())
	k.Set().Warn(log)
}

// useFetched uses the result of a fetch. It ignores secrets, which a published set must not contain.
func (k *Keys) useFetched(text []byte, err error) error {
	if err != nil {
		return err
	}
	if len(text) > 0 && string(text) == k.fetched {
		return nil
	}
	keys, skipped, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("%s: %w", k.path, err)
	}
	keys = slices.DeleteFunc(keys, func(k *jwk) bool {
		if k.alg == HS256 {
			skipped = append(skipped, k.String()+": a secret in a published set")
		}
		return k.alg == HS256
	})
	if len(keys) == 0 {
		return fmt.Errorf("%s: no public key for signatures", k.path)
	}
	if err := k.use(keys, skipped); err != nil {
		return err
	}
	k.fetched = string(text)
	return nil
}

// Refresh fetches the keys of a URL again, within the limit for tokens of unknown keys: a burst of three fetches, and
// one every ten seconds. It waits for the end of a fetch, for at most two seconds, and returns the time until Refresh
// can cause another one. Follow must be running.
func (k *Keys) Refresh() (next time.Duration) {
	k.remote.await()
	return k.remote.next()
}

// Set returns the current keys. Sets that were returned before do not change.
func (k *Keys) Set() *Set { return k.set.Load() }

// Verify is Set.Verify with the current keys. It may wait like VerifyUntil.
func (k *Keys) Verify(raw string) (sub string, err error) {
	sub, _, err = k.VerifyUntil(raw)
	return sub, err
}

// VerifyUntil is Set.VerifyUntil with the current keys. A token of an unknown key, which the URL may have published
// meanwhile, waits for a fetch like Refresh.
func (k *Keys) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	sub, expires, err = k.Set().VerifyUntil(raw)
	if k.remote != nil && errors.Is(err, errUnknownKey) && k.remote.await() {
		return k.Set().VerifyUntil(raw)
	}
	return sub, expires, err
}

// Cached is Set.Cached with the current keys.
func (k *Keys) Cached(raw string) (sub string, ok bool) { return k.Set().Cached(raw) }
