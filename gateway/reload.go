package gateway

import (
	"os"
	"strings"
	"time"

	"sluice/gateway/policy"
)

// reloader knows which state of the policy file was read last. It is used by one goroutine at a time.
type reloader struct {
	path string
	seen fileState
}

type fileState struct {
	modified time.Time
	size     int64
	missing  bool
}

func newReloader(path string) *reloader { return &reloader{path: path} }

func (r *reloader) state() fileState {
	info, err := os.Stat(r.path)
	if err != nil {
		return fileState{missing: true}
	}
	return fileState{modified: info.ModTime(), size: info.Size()}
}

// read reads the file. What it looked like is taken down before, so that a write in between is seen as a change.
func (r *reloader) read() (*policy.Policy, error) {
	r.seen = r.state()
	return policy.Read(r.path)
}

// changed says whether the file is not as it was when it was last read.
func (r *reloader) changed() bool { return r.state() != r.seen }

// reload takes over a policy that has changed. A bad one is logged once, and the old one stays. Rules that count as they did keep their buckets.
func (g *Gateway) reload() {
	if g.reloader == nil || !g.reloader.changed() {
		return
	}
	p, err := g.reloader.read()
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
