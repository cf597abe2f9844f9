package tokentest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/internal/token"
)

// Provider is an identity provider: it signs tokens with the newest of its keys and publishes all of them as a JWK Set.
// It is an http.Handler, and an http.RoundTripper for tests without a network. Safe for concurrent use.
type Provider struct {
	alg string

	mu      sync.Mutex
	kids    []string
	private map[string][]byte // by kid
	status  int               // of answers, unless it is 200
	fetches int
}

// NewProvider returns a Provider with one key.
func NewProvider(alg, kid string) *Provider {
	p := &Provider{alg: alg, private: map[string][]byte{}, status: http.StatusOK}
	p.Rotate(kid)
	return p
}

// Serve returns the URL at which the JWK Set is served until the test ends.
func (p *Provider) Serve(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL + "/jwks.json"
}

// Rotate publishes a new key, which signs all later tokens.
func (p *Provider) Rotate(kid string) {
	private := must(token.Generate(p.alg, kid))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kids, p.private[kid] = append(p.kids, kid), private
}

// Remove stops publishing a key and signing with it.
func (p *Provider) Remove(kid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kids = slices.DeleteFunc(p.kids, func(other string) bool { return other == kid })
}

// Answer sets the status of the provider's answers; 200 is the default.
func (p *Provider) Answer(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// Fetches returns the number of requests for the set.
func (p *Provider) Fetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fetches
}

// Sign returns a token of the newest key with the claims of Expected, valid for an hour.
func (p *Provider) Sign(sub string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	kid := p.kids[len(p.kids)-1]
	return must(must(token.NewSigner(p.private[kid], kid)).With(Expected).Sign(sub, time.Hour))
}

func (p *Provider) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches++
	if p.status != http.StatusOK {
		w.WriteHeader(p.status)
		return
	}
	var sets [][]byte
	for _, kid := range p.kids {
		sets = append(sets, p.private[kid])
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, _ = w.Write(must(token.Public(sets...)))
}

// RoundTrip answers a request without a network.
func (p *Provider) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	p.ServeHTTP(rec, r)
	return rec.Result(), nil
}
