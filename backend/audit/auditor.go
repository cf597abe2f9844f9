package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

// AuditorConfig configures an Auditor.
type AuditorConfig struct {
	Checker *Checker // required
	Space   keyspace.Space
	// Acquire reports whether this process may audit a shard now, so that one process at a time audits it; required.
	Acquire func(ctx context.Context, shard keyspace.Shard) bool
	// Pause pauses a sale that does not balance; required.
	Pause func(ctx context.Context, saleID, reason string) error
	// Generation reads the generation of the data of a shard, and whether it is verified. If the generation changes during
	// a count, or the data is not verified, Redis was emptied or rebuilt, and the sale is counted later. Nil means that
	// the data in Redis is never replaced.
	Generation func(ctx context.Context, shard keyspace.Shard) (generation int64, verified bool)
	// RecheckDelay is the time before a sale that does not balance is counted again. 0 means 3 s.
	RecheckDelay time.Duration
	Metrics      *Metrics     // optional
	Log          *slog.Logger // slog.Default() if nil
}

// Auditor audits every sale that is not closed, periodically. It pauses a sale that does not balance twice, the second
// time within one generation of Redis: units were oversold or lost, and an admin must decide. Any number of processes
// can run an Auditor.
type Auditor struct {
	cfg AuditorConfig
}

// NewAuditor returns an Auditor.
func NewAuditor(cfg AuditorConfig) (*Auditor, error) {
	if cfg.Checker == nil || cfg.Acquire == nil || cfg.Pause == nil {
		return nil, errors.New("audit: AuditorConfig needs Checker, Acquire and Pause")
	}
	cfg.RecheckDelay = cmp.Or(max(cfg.RecheckDelay, 0), 3*time.Second)
	if cfg.Generation == nil {
		cfg.Generation = func(context.Context, keyspace.Shard) (int64, bool) { return 0, true }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	return &Auditor{cfg}, nil
}

// interval is the shortest time between calls of Acquire.
const interval = 5 * time.Second

// restFactor bounds the share of time spent on audits: the next RunOnce begins after this many times the duration of
// the last one. After a failure it begins after the duration itself, because most of that was a wait for a store. The
// wait for a lock is not part of the duration.
const restFactor = 20

// Run audits until ctx ends. It returns nil. After an error it audits again later. It logs the first of consecutive
// errors, and their end.
func (a *Auditor) Run(ctx context.Context) error {
	wait, failing := interval, false
	for loop.Sleep(ctx, wait); ctx.Err() == nil; loop.Sleep(ctx, wait) {
		busy, err := a.RunOnce(ctx)
		if err == nil {
			busy *= restFactor
		}
		wait = max(interval, busy)
		switch {
		case ctx.Err() != nil, failing == (err != nil):
			continue
		case err != nil:
			a.cfg.Log.Warn("auditing sales fails; retrying", "err", err)
		default:
			a.cfg.Log.Info("auditing sales works again")
		}
		failing = err != nil
	}
	return nil
}

// RunOnce audits the shards that this process acquires, and returns the duration of the audits. An error of one shard
// does not prevent the audit of others. It wraps sale.ErrUnavailable.
func (a *Auditor) RunOnce(ctx context.Context) (busy time.Duration, err error) {
	began := time.Now()
	summaries, err := a.cfg.Checker.rows.SaleSummaries(ctx)
	busy = time.Since(began)
	if err != nil {
		return busy, fmt.Errorf("audit: %w", err)
	}
	var failures []error
	for _, shard := range a.cfg.Space.All() {
		switches := map[string]sale.Switch{}
		var parts []spread.Part
		for _, s := range summaries {
			if s.Switch == sale.Closed {
				continue
			}
			if segment, ok := a.cfg.Space.SegmentIn(s.ID, s.Spread, shard); ok {
				parts = append(parts, spread.PartOf(s.ID, segment, s.Spread))
				switches[s.ID] = s.Switch
			}
		}
		if len(parts) == 0 || !a.cfg.Acquire(ctx, shard) {
			continue
		}
		began := time.Now()
		if err := a.auditShard(ctx, shard, parts, switches); err != nil {
			a.cfg.Metrics.audits.WithLabelValues("failed").Inc()
			failures = append(failures, err)
		}
		busy += time.Since(began)
	}
	return busy, errors.Join(failures...)
}

var errDataChanged = fmt.Errorf("audit: Redis lost data or was rebuilt during the count: %w", sale.ErrUnavailable)

// auditShard audits parts of sales in one shard. If one of them cannot be audited, it audits the others.
func (a *Auditor) auditShard(
	ctx context.Context, shard keyspace.Shard, parts []spread.Part, switches map[string]sale.Switch,
) error {
	began := time.Now()
	reports, failed := a.cfg.Checker.AuditShard(ctx, shard, parts)
	if admission.ConcernsOthers(failed) {
		return failed
	}
	a.cfg.Metrics.seconds.Observe(time.Since(began).Seconds())
	var unbalanced []spread.Part
	for _, part := range parts {
		switch r, ok := reports[part.SaleID]; {
		case ok && r.Balanced:
			a.cfg.Metrics.audited(r)
		case ok:
			unbalanced = append(unbalanced, part)
		}
	}
	if len(unbalanced) == 0 {
		return failed
	}
	return errors.Join(failed, a.recheck(ctx, shard, unbalanced, switches))
}

// recheck audits parts that did not balance again, and reports those that still do not.
func (a *Auditor) recheck(
	ctx context.Context, shard keyspace.Shard, unbalanced []spread.Part, switches map[string]sale.Switch,
) error {
	loop.Sleep(ctx, a.cfg.RecheckDelay)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before, verified := a.cfg.Generation(ctx, shard)
	if _, err := a.cfg.Checker.stock.ReindexDead(ctx, unbalanced[0]); err != nil { // as in Checker.Audit
		return fmt.Errorf("audit: %w", err)
	}
	reports, err := a.cfg.Checker.AuditShard(ctx, shard, unbalanced)
	if err != nil {
		return err
	}
	if after, still := a.cfg.Generation(ctx, shard); !verified || !still || before != after {
		return errDataChanged
	}
	for _, part := range unbalanced {
		r := reports[part.SaleID]
		a.cfg.Metrics.audited(r)
		if !r.Balanced {
			a.reportUnbalanced(ctx, part, r, switches[part.SaleID])
		}
	}
	return nil
}

// reportUnbalanced logs a sale that does not balance, and pauses it if it is on.
func (a *Auditor) reportUnbalanced(ctx context.Context, of spread.Part, r Report, current sale.Switch) {
	log := a.cfg.Log.With("sale", r.SaleID)
	if of.Spread > 1 {
		log = log.With("segment", of.Segment)
	}
	orders, err := a.cfg.Checker.Explain(ctx, of)
	if err != nil {
		log.Warn("audit: the orders in the wrong place could not be determined", "err", err)
	}
	reason := "the audit does not balance: " + strings.Join(r.Differences, "; ")
	for _, o := range orders[:min(len(orders), 3)] {
		reason += "; " + o.String()
	}
	log.Error("audit: sale does not balance", "differences", r.Differences, "orders", orders)
	if current != sale.On {
		return
	}
	if err := a.cfg.Pause(ctx, r.SaleID, reason); err != nil {
		log.Error("audit: sale could not be paused", "err", err)
	}
}
