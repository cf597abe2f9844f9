package token_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

const keysURL = "https://login.example/jwks.json"

var discard = slog.New(slog.DiscardHandler)

// following opens a URL that transport serves and follows it until the test ends. reports returns the reports of
// Follow.
func following(t *testing.T, transport http.RoundTripper) (keys *token.Keys, reports func() []error) {
	t.Helper()
	keys, err := token.Open(keysURL, "", token.Options{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Await(t.Context(), discard); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var mu sync.Mutex
	var all []error
	go func() {
		defer close(done)
		keys.Follow(ctx, func(err error) { mu.Lock(); defer mu.Unlock(); all = append(all, err) })
	}()
	t.Cleanup(func() { stop(); <-done })
	return keys, func() []error { mu.Lock(); defer mu.Unlock(); got := all; all = nil; return got }
}

func TestNewKeyIsFetchedForTheTokenThatNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		keys, reports := following(t, p)
		old := p.Sign("ann")
		p.Rotate("second")
		before := time.Now()
		if sub, err := keys.Verify(p.Sign("bob")); sub != "bob" || err != nil {
			t.Errorf("a token of the new key: %q, %v", sub, err)
		}
		if waited := time.Since(before); waited != 0 || p.Fetches() != 2 {
			t.Errorf("waited %s, %d fetches", waited, p.Fetches())
		}
		if sub, err := keys.Verify(old); sub != "ann" || err != nil {
			t.Errorf("a token of the old key: %q, %v", sub, err)
		}
		p.Remove("first")
		time.Sleep(5 * time.Minute)
		if _, err := keys.Verify(old); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("a token of a removed key: %v", err)
		}
		synctest.Wait()
		if got := reports(); len(got) != 2 || got[0] != nil || got[1] != nil {
			t.Errorf("reports: %v", got)
		}
	})
}

// Tokens of any number of unknown keys cause three fetches, and then at most one every ten seconds.
func TestFloodOfUnknownKeysCausesFewFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		keys, _ := following(t, p)
		forger := tokentest.NewProvider(token.EdDSA, "0")
		const seconds = 100
		for second := range seconds {
			for i := range 50 {
				header := fmt.Sprintf(`{"alg":"EdDSA","kid":"%d-%d"}`, second, i)
				raw := tokentest.Segments(header, `{"sub":"eve","exp":4102444800}`) + ".AA"
				if _, err := keys.Verify(raw); err == nil {
					t.Fatal("a forged token was accepted")
				}
			}
			if _, err := keys.Verify(forger.Sign("eve")); err == nil {
				t.Fatal("a token of another issuer was accepted")
			}
			time.Sleep(time.Second)
		}
		if n := p.Fetches(); n < 5 || n > 1+3+seconds/10 {
			t.Errorf("%d fetches", n)
		}
	})
}

// Tokens of known keys, and malformed tokens, cause no fetch.
func TestOtherInvalidTokensCauseNoFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		keys, _ := following(t, p)
		time.Sleep(time.Minute)
		good := p.Sign("ann")
		for _, raw := range []string{
			"", "x", "a.b.c", good + "A", good[:len(good)-4] + "AAAA", tokentest.Segments(`{}`, `{}`) + ".AA",
		} {
			if _, err := keys.Verify(raw); err == nil {
				t.Errorf("%q was accepted", raw)
			}
		}
		if n := p.Fetches(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestLastGoodSetStaysWhileTheProviderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		keys, reports := following(t, p)
		good := p.Sign("ann")
		p.Answer(http.StatusBadGateway)
		time.Sleep(50 * time.Minute)
		if sub, err := keys.Verify(good); sub != "ann" || err != nil {
			t.Errorf("while the provider fails: %q, %v", sub, err)
		}
		failures := reports()
		if len(failures) < 80 || len(failures) > 120 { // every half a minute, after the first five
			t.Errorf("%d reports in 50 minutes", len(failures))
		}
		if err := failures[0]; err == nil || err.Error() != keysURL+": status 502, want 200" {
			t.Errorf("reported %v", err)
		}
		p.Answer(http.StatusOK)
		time.Sleep(time.Minute)
		if got := reports(); len(got) != 1 || got[0] != nil {
			t.Errorf("after the recovery: %v", got)
		}
	})
}

// hanging is a transport that never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// switched is a transport that can be replaced during a test.
type switched struct {
	mu sync.Mutex
	to http.RoundTripper
}

func (s *switched) use(to http.RoundTripper) { s.mu.Lock(); defer s.mu.Unlock(); s.to = to }

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	to := s.to
	s.mu.Unlock()
	return to.RoundTrip(r)
}

func TestTokenWaitsTwoSecondsForAProviderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		s := &switched{to: p}
		keys, reports := following(t, s)
		time.Sleep(time.Minute)
		s.use(hanging{})
		p.Rotate("second")
		raw := p.Sign("ann")
		var together sync.WaitGroup
		for range 1500 { // more than may wait
			together.Go(func() {
				before := time.Now()
				if _, err := keys.Verify(raw); err == nil {
					t.Error("accepted without its key")
				}
				if waited := time.Since(before); waited > 2*time.Second {
					t.Errorf("waited %s", waited)
				}
			})
		}
		together.Wait()
		time.Sleep(4 * time.Second)
		if got := reports(); len(got) != 1 || got[0].Error() != keysURL+": no complete response within 5s" {
			t.Errorf("reports: %v", got)
		}
	})
}

func TestStartWaitsForTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tokentest.NewProvider(token.EdDSA, "first")
		p.Answer(http.StatusServiceUnavailable)
		keys, err := token.Open(keysURL, "", token.Options{Transport: p})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Verify("a.b.c"); err == nil {
			t.Error("accepted without keys")
		}
		before := time.Now()
		err = keys.Await(t.Context(), discard)
		want := "no token keys within 30s: " + keysURL + ": status 503, want 200"
		if err == nil || err.Error() != want || time.Since(before) != 30*time.Second {
			t.Errorf("after %s: %v, want %s", time.Since(before), err, want)
		}
		time.AfterFunc(20*time.Second, func() { p.Answer(http.StatusOK) })
		if err := keys.Await(t.Context(), discard); err != nil {
			t.Errorf("the provider recovered: %v", err)
		}
		if sub, err := keys.Verify(p.Sign("ann")); sub != "ann" || err != nil {
			t.Errorf("%q, %v", sub, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		p.Answer(http.StatusServiceUnavailable)
		time.AfterFunc(time.Second, stop)
		if err := keys.Await(ctx, discard); !errors.Is(err, context.Canceled) {
			t.Errorf("a stop: %v", err)
		}
	})
}

func TestKeysURLsThatAreNotAllowed(t *testing.T) {
	for url, want := range map[string]string{
		"http://login.example/jwks.json":         "want https://",
		"http://10.0.0.1/jwks.json":              "want https://",
		"http://127.0.0.1.example/jwks.json":     "want https://",
		"ftp://login.example/jwks.json":          "ftp:// is not allowed: want https://",
		"file:///etc/keys.json":                  "want https://host/path",
		"https://":                               "want https://host/path",
		"https://user:pass@login.example/":       "without a user",
		"https://login.example/jwks.json#secret": "without a user or a fragment",
		"https://login.example/%zz":              "want https://host/path",
	} {
		if _, err := token.Open(url, "", token.Options{}); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	for _, url := range []string{
		"https://login.example/jwks.json", "http://127.0.0.1:1/", "http://127.9.9.9/", "http://[::1]:80/",
		"http://localhost/x",
	} {
		if _, err := token.Open(url, "", token.Options{}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestHostileProviders(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	plain := httptest.NewServer(p)
	t.Cleanup(plain.Close)
	redirect := func(to string) http.HandlerFunc { return http.RedirectHandler(to, http.StatusFound).ServeHTTP }
	secret, err := token.Generate(token.HS256, "shared")
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string // "": the set is accepted
	}{
		"a redirect within the scheme": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/there" {
				p.ServeHTTP(w, r)
				return
			}
			http.Redirect(w, r, "/there", http.StatusFound)
		}, ""},
		"a redirect to http":    {redirect(plain.URL), "redirected from https:// to http://"},
		"a redirect to a file":  {redirect("file:///etc/passwd"), "redirected from https:// to file://"},
		"redirects in a circle": {redirect("/jwks.json"), "more than 3 redirects"},
		"a page":                {text("<!doctype html>"), "not a JSON object"},
		"nothing":               {text(""), "not a JSON object"},
		"no keys":               {text(`{"keys":[]}`), "must be a list of one key at least"},
		"a secret":              {text(string(secret)), "no public key for signatures"},
		"more than is allowed":  {text(strings.Repeat(" ", 300<<10)), "longer than 262144 bytes"},
		"an endless body": {func(w http.ResponseWriter, _ *http.Request) {
			for line := strings.Repeat(" ", 1<<16); ; {
				if _, err := w.Write([]byte(line)); err != nil {
					return
				}
			}
		}, "longer than 262144 bytes"},
		"a compressed body that is long": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 8 {
				_, _ = z.Write(make([]byte, 1<<16))
			}
			_ = z.Close()
		}, "longer than 262144 bytes"},
		"a body that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
		}, "unexpected EOF"},
		"not found": {http.NotFound, "status 404, want 200"},
		"no content": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}, "status 204, want 200"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewTLSServer(c.handler)
			t.Cleanup(s.Close)
			err := token.FetchOnce(t.Context(), s.URL+"/jwks.json", s.Client().Transport)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
				!strings.HasPrefix(err.Error(), s.URL+"/jwks.json: ") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	t.Run("an unknown certificate", func(t *testing.T) {
		s := httptest.NewTLSServer(p)
		t.Cleanup(s.Close)
		err := token.FetchOnce(t.Context(), s.URL+"/jwks.json", nil)
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%v", err)
		}
	})
}
