package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"sluice/gateway/policy"
)

// reloader reads a policy file and detects changes. It compares the text and not the modification time or size: a
// file may be replaced by one with an old time, or change twice within the resolution of the file system. Not safe
// for concurrent use.
type reloader struct {
	path   string
	loaded bool // read was called before
	source string
	failed string // error of the last read
}

// read parses the file, and reports whether it has changed since the last call.
func (r *reloader) read() (p *policy.Policy, changed bool, err error) {
	source, err := policy.Source(r.path)
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if r.loaded && failed == r.failed && (failed != "" || string(source) == r.source) {
		return nil, false, err
	}
	r.loaded, r.source, r.failed = true, string(source), failed
	if err == nil {
		p, err = policy.Parse(r.path, source)
	}
	return p, true, err
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
	for _, r := range old.missing(next) {
		g.table.Remove(r.limit)
	}
	g.metrics.policyReloads.WithLabelValues("ok").Inc()
	g.log.Info("policy reloaded", "rules", len(p.Rules))
}

// reloadKeys applies a changed token key file. An invalid one is logged once, and the previous keys stay in use.
func (g *Gateway) reloadKeys() {
	switch changed, err := g.verifier.keys.Reload(); {
	case err != nil:
		g.metrics.keyReloads.WithLabelValues("error").Inc()
		g.log.Error("token keys are invalid, keeping the previous ones", "err", err)
	case changed:
		g.metrics.keyReloads.WithLabelValues("ok").Inc()
		g.log.Info("token keys reloaded", "keys", g.verifier.keys.Set().Names())
	}
}

// certificate is the TLS certificate of the edge. It is used for HTTP/1.1 only; HTTP/2 needs the nginx edge.
type certificate struct {
	certPath, keyPath string
	seen              [2]fileState
	current           atomic.Pointer[tls.Certificate]
}

// readCertificate returns nil without an error if no files are named.
func readCertificate(certPath, keyPath string) (*certificate, error) {
	if certPath == "" && keyPath == "" {
		return nil, nil
	}
	if certPath == "" || keyPath == "" {
		return nil, errors.New("certificate or key missing: name both files, or none")
	}
	c := &certificate{certPath: certPath, keyPath: keyPath}
	return c, c.read()
}

func (c *certificate) read() error {
	c.seen = c.state()
	pair, err := tls.LoadX509KeyPair(c.certPath, c.keyPath)
	if err != nil {
		return fmt.Errorf("certificate %s: %s", c.certPath, strings.TrimPrefix(err.Error(), "tls: "))
	}
	c.current.Store(&pair)
	return nil
}

func (c *certificate) state() [2]fileState {
	return [2]fileState{stateOf(c.certPath), stateOf(c.keyPath)}
}

type fileState struct {
	modified time.Time
	size     int64
}

// stateOf returns the zero fileState if the file cannot be read.
func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{info.ModTime(), info.Size()}
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// reloadCertificate applies changed files. Invalid ones are logged once, and the previous certificate stays in use.
func (g *Gateway) reloadCertificate() {
	c := g.certificate
	if c == nil || c.state() == c.seen {
		return
	}
	if err := c.read(); err != nil {
		g.log.Error("certificate is invalid, keeping the previous one", "err", err)
		return
	}
	g.log.Info("certificate reloaded")
}
