package edgeconfig

import (
	"errors"
	"slices"
	"testing"
)

func TestCheckSetsDefaults(t *testing.T) {
	given := []string{"http://a", "b:8080", "unix:/run/c.sock"}
	s := Shared{Upstreams: given}
	if errs := s.Check(); len(errs) > 0 {
		t.Fatal(errs)
	}
	if want := []string{"a:80", "b:8080", "unix:/run/c.sock"}; !slices.Equal(s.Upstreams, want) {
		t.Errorf("upstreams %q, want %q", s.Upstreams, want)
	}
	if s.PerClient != DefaultPerClient || given[0] != "http://a" {
		t.Errorf("%d requests of a client; the caller's upstreams are %q", s.PerClient, given)
	}
}

func TestCheckReturnsAllErrors(t *testing.T) {
	s := Shared{
		Upstreams: []string{"https://a", "b"}, PerClient: 65536, TLSCert: "x",
		CORSOrigins: []string{"shop", "https://a.example", "https://b.example", "https://a.example"},
	}
	const want = `--upstream "https://a": backends are reached by http, and not by https
--upstream "b": write host:port
--cors-origins: "shop" is not an origin: write a scheme and a host in lower case, such as https://shop.example or http://localhost:3000
--cors-origins names https://a.example twice
--per-client must be between 1 and 65535, and is 65536
--tls-cert and --tls-key go together`
	if err := errors.Join(s.Check()...); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
