package audit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Sales lists the sales in SQL (order.Store).
type Sales interface {
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
}

// AuditorConfig tunes an Auditor. Zero fields take the defaults named here.
type AuditorConfig struct {
	// Turn tells whether it is this process's turn to audit a shard; each is audited by one at a time. Required.
	Acquire func(ctx context.Context, shard keyspace.Shard) bool
	// Pause pauses a sale that does not balance; required.
	Pause func(ctx context.Context, saleID, reason string) error
	// Generation tells which generation of Redis is verified, asked of Redis itself, or that none is. A sale that does not balance while the generation changes, or
	// while there is none, is counted later: Redis was emptied or rebuilt under the count. nil: Redis keeps what it has.
	Generation func(ctx context.Context) (generation int64, verified bool)
	// Every is how often turns are asked for; 5 s.
	Interval time.Duration
	// Again is how long to wait before a sale that does not balance is counted once more; 3 s.
	RecheckDelay time.Duration
	Metrics      *Metrics     // nil: nothing is counted
	Log          *slog.Logger // slog.Default()
}

// Auditor audits every sale that is not closed, again and again, in any number of processes. A sale that does not balance twice, the second time in one generation of Redis, is paused: something sells
// units that are not there, or has lost some, and a person must look.
type Auditor struct {
	checker *Checker
	sales   Sales
	space   keyspace.Space
	cfg     AuditorConfig
}

// NewAuditor makes an Auditor.
func NewAuditor(l *Checker, sales Sales, space keyspace.Space, cfg AuditorConfig) *Auditor {
	if cfg.Interval <= 0 {
		cfg.Interval = 5 * time.Second
	}
	if cfg.RecheckDelay <= 0 {
		cfg.RecheckDelay = 3 * time.Second
	}
	if cfg.Generation == nil {
		cfg.Generation = func(context.Context) (int64, bool) { return 0, true }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	return &Auditor{checker: l, sales: sales, space: space, cfg: cfg}
}

// resting is how many times as long as an audit took the next one waits at least: a long queue is not audited all the time.
const restFactor = 20

// Run audits until ctx ends; it returns nil. What cannot be counted now is counted later: whoever runs the stores is told by other means.
func (a *Auditor) Run(ctx context.Context) error {
	wait := a.cfg.Interval
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		began := time.Now()
		if err := a.RunOnce(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Log.Debug("audit: not done", "err", err)
		}
		wait = max(a.cfg.Interval, restFactor*time.Since(began))
	}
}

// RunOnce audits the shards whose turn it is. An error wraps sale.ErrUnavailable.
func (a *Auditor) RunOnce(ctx context.Context) error {
	standings, err := a.sales.SaleSummaries(ctx)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	for _, shard := range a.space.All() {
		switches := map[string]sale.Switch{}
		var ids []string
		for _, s := range standings {
			if s.Switch != sale.Closed && a.space.ShardOf(s.ID) == shard {
				ids, switches[s.ID] = append(ids, s.ID), s.Switch
			}
		}
		if len(ids) == 0 || !a.cfg.Acquire(ctx, shard) {
			continue
		}
		if err := a.auditShard(ctx, shard, ids, switches); err != nil {
			a.cfg.Metrics.failed()
			return err
		}
	}
	return nil
}

var errMoved = fmt.Errorf("ledger: Redis lost data or was rebuilt while it was counted: %w", sale.ErrUnavailable)

func (a *Auditor) auditShard(ctx context.Context, shard keyspace.Shard, ids []string, switches map[string]sale.Switch) error {
	began := time.Now()
	reports, err := a.checker.AuditShard(ctx, shard, ids)
	if err != nil {
		return err
	}
	a.cfg.Metrics.took(time.Since(began))
	var doubtful []string
	for id, r := range reports {
		if r.Balanced {
			a.cfg.Metrics.audited(r)
		} else {
			doubtful = append(doubtful, id)
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(a.cfg.RecheckDelay):
	}
	before, verified := a.cfg.Generation(ctx)
	if _, err := a.checker.stock.ReindexDead(ctx, doubtful[0]); err != nil { // see Ledger.Audit
		return fmt.Errorf("ledger: %w", err)
	}
	if reports, err = a.checker.AuditShard(ctx, shard, doubtful); err != nil {
		return err
	}
	if after, still := a.cfg.Generation(ctx); !verified || !still || before != after {
		return errMoved
	}
	for _, id := range doubtful {
		r := reports[id]
		a.cfg.Metrics.audited(r)
		if r.Balanced {
			continue
		}
		orders, err := a.checker.Explain(ctx, id)
		if err != nil {
			a.cfg.Log.Warn("audit: which orders are at fault could not be found out", "sale", id, "err", err)
		}
		why := "the audit does not balance: " + strings.Join(r.Differences, "; ")
		for _, o := range orders[:min(len(orders), 3)] {
			why += "; " + o.String()
		}
		a.cfg.Log.Error("audit: a sale does not balance", "sale", id, "differences", r.Differences, "orders", orders)
		if switches[id] != sale.On {
			continue
		}
		if err := a.cfg.Pause(ctx, id, why); err != nil {
			a.cfg.Log.Error("audit: a sale that does not balance could not be paused", "sale", id, "err", err)
		}
	}
	return nil
}
