// Package edgeconfig has the settings that the nginx edge and the Go edge share.
package edgeconfig

import (
	"cmp"
	"fmt"
	"slices"

	"sluice/internal/address"
	"sluice/internal/origin"
	"sluice/internal/token"
)

// Shared configures what an edge of either kind has. Upstreams, and Secret or TokenKeys (or both), are required.
type Shared struct {
	Upstreams []string // backends: host:port, http://host:port or unix:/path

	Secret    string // HS256 key of tokens without a key id; at least token.MinSecret bytes
	TokenKeys string // JWK Set with the keys of other tokens: a file, or a URL at the Go edge

	token.Expect // issuer and audience of tokens

	// CORSOrigins are the origins of sites whose pages may call the API, such as https://shop.example; default: none.
	CORSOrigins []string

	PerClient     int    // concurrent requests of one client, at most 65535; default DefaultPerClient
	ProxyProtocol bool   // connections begin with a PROXY header, which is used if the peer is in trusted_proxies
	TLSCert       string // PEM file of a certificate and its chain: the edge speaks TLS
	TLSKey        string // PEM file of its key
}

// DefaultPerClient is the default of Shared.PerClient.
const DefaultPerClient = 1000

// Check replaces Upstreams by the addresses, host:port or unix:/path, and sets the default of PerClient. It returns an
// error for each invalid value, except those of Secret and TokenKeys. It does not read files.
func (s *Shared) Check() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(s.Upstreams) == 0 {
		wrong("--upstream is missing: want http://host:port or unix:/path, once for each backend")
	}
	addresses := make([]string, len(s.Upstreams))
	for i, raw := range s.Upstreams {
		var err error
		if addresses[i], err = address.Backend(raw); err != nil {
			wrong("--upstream %q: %w", raw, err)
		}
	}
	s.Upstreams = addresses
	for i, o := range s.CORSOrigins {
		if err := origin.Check(o); err != nil {
			wrong("--cors-origins: %w", err)
		} else if slices.Contains(s.CORSOrigins[:i], o) {
			wrong("--cors-origins names %s twice", o)
		}
	}
	if s.PerClient < 0 || s.PerClient > 65535 {
		wrong("--per-client must be between 1 and 65535, and is %d", s.PerClient)
	}
	s.PerClient = cmp.Or(s.PerClient, DefaultPerClient)
	if (s.TLSCert == "") != (s.TLSKey == "") {
		wrong("--tls-cert and --tls-key go together")
	}
	return errs
}
