package gateway

import (
	"strings"

	"sluice/gateway/policy"
)

// reloader knows what the policy file said when it was read last. It is used by one goroutine at a time.
//
// It compares the text and not the file's time or size: a file that was put in place with its old time, or written twice within the file system's
// tick, has changed all the same. A policy is small.
type reloader struct {
	path   string
	begun  bool // it was read before
	source string
	failed string // why it could not be read
}

func newReloader(path string) *reloader { return &reloader{path: path} }

// read reads the file, and says whether it has changed since the last time.
func (r *reloader) read() (p *policy.Policy, changed bool, err error) {
	source, err := policy.Source(r.path)
	failed := ""
	if err != nil {
		failed = err.Error()
	}
	if r.begun && failed == r.failed && (failed != "" || string(source) == r.source) {
		return nil, false, err
	}
	r.begun, r.source, r.failed = true, string(source), failed
	if err == nil {
		p, err = policy.Parse(r.path, source)
	}
	return p, true, err
}

// reload takes over a policy that has changed. A bad one is logged once, and the old one stays. Rules that count as they did keep their buckets.
func (g *Gateway) reload() {
	if g.reloader == nil {
		return
	}
	p, changed, err := g.reloader.read()
	if !changed {
		return
	}
	if err != nil {
		g.metrics.reloads.WithLabelValues("error").Inc()
		g.log.Error("the policy has mistakes, the one before it stays", "err", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	old := g.policy.Load()
	next := newSnapshot(p, old, g.metrics)
	g.policy.Store(next)
	for _, r := range old.gone(next) {
		g.table.Forget(r.limit)
	}
	g.metrics.reloads.WithLabelValues("ok").Inc()
	g.log.Info("the policy has changed", "rules", len(p.Rules))
}

// reloadKeys takes over a file of token keys that has changed. A bad one is logged once, and the old keys stay.
func (g *Gateway) reloadKeys() {
	switch changed, err := g.verifier.keys.Reload(); {
	case err != nil:
		g.metrics.keyReloads.WithLabelValues("error").Inc()
		g.log.Error("the token keys have mistakes, those before them stay", "err", err)
	case changed:
		g.metrics.keyReloads.WithLabelValues("ok").Inc()
		g.log.Info("the token keys have changed", "keys", g.verifier.keys.Set().Names())
	}
}
