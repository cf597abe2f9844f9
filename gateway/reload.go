package gateway

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"sluice/gateway/policy"
	"sluice/internal/reload"
)

// reloader reads a policy file and detects changes. Not safe for concurrent use.
type reloader struct {
	path     string
	fleet    bool // rules may have the scope of the fleet
	detector reload.Detector
}

// read parses the file, and reports whether it has changed since the last call.
func (r *reloader) read() (p *policy.Policy, changed bool, err error) {
	source, err := policy.Source(r.path)
	if !r.detector.Changed(source, err) {
		return nil, false, err
	}
	if err == nil {
		p, err = parsePolicy(r.path, source, r.fleet)
	}
	return p, true, err
}

// parsePolicy parses a policy. fleet permits rules with the scope of the fleet.
func parsePolicy(name string, source []byte, fleet bool) (*policy.Policy, error) {
	p, err := policy.Parse(name, source)
	if err == nil && !fleet {
		err = p.CheckFleet(name)
	}
	return p, err
}

// reloadPolicy applies a changed policy. An invalid one is logged once, and the previous one stays in force.
func (g *Gateway) reloadPolicy() {
	if g.reloader == nil {
		return
	}
	p, changed, err := g.reloader.read()
	if !changed {
		return
	}
	if err != nil {
		g.metrics.policyReloads.WithLabelValues("error").Inc()
		g.log.Error("policy is invalid, keeping the previous one", "err", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	old := g.policy.Load()
	next := newSnapshot(p, old, g.metrics)
	g.policy.Store(next)
	for _, r := range old.all() {
		if next.find(r.Rule) == nil {
			g.table.Remove(r.limit)
		}
	}
	g.metrics.policyReloads.WithLabelValues("ok").Inc()
	g.log.Info("policy reloaded", "rules", len(p.Rules))
}

// keysRead counts and logs a change of the token keys, or why they cannot be read: the previous ones stay in use.
func (g *Gateway) keysRead(err error) {
	g.metrics.keyReloads.WithLabelValues(resultLabel(err == nil)).Inc()
	g.keys.LogChange(g.log, err)
}

// certificate is the TLS certificate of the edge. It is used for HTTP/1.1 only; HTTP/2 needs the nginx edge.
type certificate struct {
	certPath, keyPath string
	detector          reload.Detector
	current           atomic.Pointer[tls.Certificate]
}

// readCertificate returns nil without an error unless both files are named.
func readCertificate(certPath, keyPath string) (*certificate, error) {
	if certPath == "" || keyPath == "" {
		return nil, nil
	}
	c := &certificate{certPath: certPath, keyPath: keyPath}
	_, err := c.read()
	return c, err
}

// read uses the files, and reports whether they have changed since the last call.
func (c *certificate) read() (changed bool, err error) {
	cert, certErr := reload.ReadFile(c.certPath, reload.MaxPEM)
	key, keyErr := reload.ReadFile(c.keyPath, reload.MaxPEM)
	err = cmp.Or(certErr, keyErr)
	if !c.detector.Changed(slices.Concat(cert, key), err) {
		return false, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return true, fmt.Errorf("certificate %s: %s", c.certPath, strings.TrimPrefix(err.Error(), "tls: "))
	}
	c.current.Store(&pair)
	return true, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1", "http/1.0"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// reloadCertificate applies changed files. Invalid ones are logged once, and the previous certificate stays in use.
func (g *Gateway) reloadCertificate() {
	c := g.certificate
	if c == nil || reload.IsPipe(c.certPath) || reload.IsPipe(c.keyPath) {
		return
	}
	switch changed, err := c.read(); {
	case err != nil:
		g.log.Error("certificate is invalid, keeping the previous one", "err", err)
	case changed:
		g.log.Info("certificate reloaded")
	}
}
