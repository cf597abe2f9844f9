package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/recovery/guard"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// job is the rebuild of one shard in progress.
type job struct {
	*Rebuilder
	Hold            // its client is pinned to one server
	from     string // id of the deployment from which the data is taken over; "" if it is not
	runID    string
	only     []string // ids of the sales to rebuild; none: all
	status   *status
	sales    []*saleCount
	byID     map[string]*saleCount
	others   []string // ids of sales that are suspended and not rebuilt
	notInSQL []string // ids of sales that remain suspended, because SQL does not have them

	kept    []string // messages of other sales, and texts that are not messages
	batches []string // keys of the batches
}

func (j *job) run(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin", j.begin},
		{"fence", func(ctx context.Context) error { return j.cfg.Store.BeginGeneration(ctx, int(j.shard), j.fence) }},
		{"suspend", j.suspendSales},
		{"queue", j.readQueue},
		{"count", j.countSales},
		{"letters", j.writeLetters},
		{"sales", func(ctx context.Context) error { return j.eachSale(ctx, j.writeSale) }},
		{"numbers", j.SkipOrderNumbers},
		{"swap", j.swapQueue},
		{"journals", j.awaitJournals},
		{"audit", j.auditSales},
		{"resume", j.resumeSales},
		{"finish", j.finish},
	}
	for _, s := range steps {
		if err := j.cfg.Step(s.name); err != nil {
			return err
		}
		j.status.step(s.name)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// begin holds the shard, which makes its data that of this deployment. If it is not verified, all its sales are
// rebuilt. If another deployment may have used it, begin waits for the processes of that deployment.
func (j *job) begin(ctx context.Context) error {
	verified := ""
	if len(j.only) > 0 {
		verified = j.runID
	}
	err := j.Begin(ctx, verified, j.from)
	if errors.Is(err, guard.ErrUnverified) {
		j.only = nil
		err = j.Begin(ctx, "", j.from)
	}
	takenOver := errors.Is(err, errTakenOver)
	if err != nil && !takenOver {
		return err
	}
	j.cfg.Changed(ctx, j.shard)
	// If the data was deleted after its owner was read, Begin does not report the takeover, but from is set.
	if takenOver || j.from != "" {
		return awaitFormerOwner(ctx)
	}
	return nil
}

// awaitFormerOwner waits until the guards of the former owner's processes have noticed the takeover. What these
// processes change until then is part of what the rebuild reads and corrects.
func awaitFormerOwner(ctx context.Context) error {
	loop.Sleep(ctx, 2*guard.Heartbeat)
	return ctx.Err()
}

// suspendSales suspends all sales of the shard, and determines those to rebuild. The others are suspended as well,
// because an order that is accepted after the queue was read would not be in the new queue. A rebuild of all sales also
// suspends those that SQL does not have, because none of their orders could become a row. They remain suspended until
// they are created again.
func (j *job) suspendSales(ctx context.Context) error {
	inSQL, err := j.summaries(ctx)
	if err != nil {
		return err
	}
	ids, err := j.client.SMembers(ctx, j.shard.Sales()).Result()
	if err != nil {
		return sale.Unavailable(err)
	}
	if len(j.only) == 0 {
		if err := j.noteNotInSQL(ctx, ids, inSQL); err != nil {
			return err
		}
	}
	for _, s := range inSQL {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if err := j.Suspend(ctx, ids); err != nil {
		return err
	}
	if len(j.only) > 0 {
		j.others = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(j.only, id) })
	}
	return j.beginCounts(ctx)
}

// beginCounts reads the sales to rebuild from SQL a second time: a sale may have been paused between the first reading
// and Suspend, and must not be resumed.
func (j *job) beginCounts(ctx context.Context) error {
	inSQL, err := j.summaries(ctx)
	if err != nil {
		return err
	}
	j.byID = map[string]*saleCount{}
	for _, s := range inSQL {
		if len(j.only) > 0 && !slices.Contains(j.only, s.ID) {
			continue
		}
		segment, _ := j.cfg.Space.SegmentIn(s.ID, s.Spread, j.shard)
		part := spread.PartOf(s.ID, segment, s.Spread)
		c := newSaleCount(s.Sale, s.Sold/max(int64(s.Spread), 1), part)
		j.sales, j.byID[s.ID] = append(j.sales, c), c
	}
	return j.claimSegments(ctx)
}

// noteNotInSQL sets notInSQL to the sales of Redis that SQL does not have. It looks for each of them in SQL again,
// because it may have been created since inSQL was read. Rehearsals are left out: one that is being removed is still in
// Redis and no longer in SQL.
func (j *job) noteNotInSQL(ctx context.Context, inRedis []string, inSQL []store.SaleSummary) error {
	for _, id := range inRedis {
		if sale.IsRehearsal(id) || slices.ContainsFunc(inSQL, func(s store.SaleSummary) bool { return s.ID == id }) {
			continue
		}
		switch _, _, err := j.cfg.Store.Sale(ctx, id); {
		case errors.Is(err, sale.ErrNotFound):
			j.notInSQL = append(j.notInSQL, id)
		case err != nil:
			return err
		}
	}
	return nil
}

// summaries returns the sales of the shard in SQL.
func (j *job) summaries(ctx context.Context) ([]store.SaleSummary, error) {
	all, err := j.cfg.Store.SaleSummaries(ctx)
	return slices.DeleteFunc(all, func(s store.SaleSummary) bool {
		_, ok := j.cfg.Space.SegmentIn(s.ID, s.Spread, j.shard)
		return !ok
	}), err
}

// warnEvery is how often a rebuild names the journals for which it waits.
const warnEvery = 5 * time.Second

// awaitJournals waits until the running backends have restored the orders of their journals. While a backend restores
// its journal, the wait has no bound: without the wait, units of the orders that are not restored yet could be sold
// again. See awaits.
func (j *job) awaitJournals(ctx context.Context) error {
	deadline := time.Now().Add(j.cfg.JournalWait)
	nextWarning := deadline
	for late := false; ; {
		if err := j.CheckFence(ctx); err != nil { // Redis was emptied, or a later rebuild has begun
			return err
		}
		waiting, restoring, err := j.awaitedJournals(ctx)
		if err != nil || waiting == 0 {
			return err
		}
		now := time.Now()
		switch {
		case len(restoring) > 0:
			deadline, late = now.Add(j.cfg.JournalWait), false
			if now.After(nextWarning) {
				nextWarning = now.Add(warnEvery)
				j.cfg.Log.Warn("rebuild: waits for backends that restore their journals", "journals", restoring)
			}
		case late:
			j.cfg.Log.Warn("rebuild: some journals are late; their orders will be restored later", "journals", waiting)
			return nil
		default: // after the deadline the journals are read once more: this read may have been slow
			late = now.After(deadline)
		}
		if loop.Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// awaitedJournals returns the number of journals for which the rebuild waits, and the ids of those that are being
// restored.
func (j *job) awaitedJournals(ctx context.Context) (waiting int, restoring []string, err error) {
	journals, err := j.cfg.Store.Journals(ctx, int(j.shard))
	for _, s := range journals {
		waits, restores := j.cfg.Journals.awaits(j.shard, s, j.fence)
		if waits {
			waiting++
		}
		if restores {
			restoring = append(restoring, s.ID)
		}
	}
	return waiting, restoring, err
}

// auditSales audits every sale before purchases resume. It pauses a sale that does not balance.
func (j *job) auditSales(ctx context.Context) error {
	stock := admission.NewStock(admission.StockConfig{Client: j.client, Space: j.cfg.Space})
	checker := audit.New(stock, j.cfg.Store)
	j.status.total(len(j.sales))
	parts := make([]spread.Part, len(j.sales))
	for i, c := range j.sales {
		parts[i] = c.part
	}
	reports, err := checker.AuditShard(ctx, j.shard, parts)
	if err != nil {
		return err
	}
	if err := j.CheckFence(ctx); err != nil { // the audit may have read other data than this rebuild has written
		return err
	}
	for _, c := range j.sales {
		c.report = reports[c.def.ID]
		j.status.done(1)
		if c.report.Balanced {
			continue
		}
		c.reason = "it does not balance after a rebuild of Redis: " + strings.Join(c.report.Differences, "; ")
		j.cfg.Log.Error("rebuild: sale does not balance",
			"sale", c.def.ID, "differences", c.report.Differences, "orders", c.report.Orders)
		if c.def.Switch != sale.On {
			continue
		}
		if err := j.cfg.Pause(ctx, c.def.ID, c.reason); err != nil && !errors.Is(err, sale.ErrConflict) {
			return err
		}
		c.def.Switch = sale.Paused
	}
	return nil
}

// resumeSales restores version and switch of the sales. The version is that of the counted stock; the reconcile
// loop applies a later one. A sale that was not rebuilt gets those that it had.
func (j *job) resumeSales(ctx context.Context) error {
	sales := make([]sale.Sale, 0, len(j.sales)+len(j.others))
	for _, c := range j.sales {
		sales = append(sales, c.def)
	}
	for _, id := range j.others {
		sales = append(sales, sale.Sale{ID: id})
	}
	return j.Resume(ctx, sales)
}

// finish marks the data of the shard as verified.
func (j *job) finish(ctx context.Context) error {
	if err := j.Finish(ctx, j.runID); err != nil {
		return err
	}
	var changes []any
	for _, c := range j.sales {
		j.status.sale(c)
		if c.changed() {
			changes = append(changes, slog.Group(c.def.ID,
				"requeued", len(c.requeued), "unbacked", len(c.unbacked), "corrected_buyers", c.corrected))
		}
	}
	attrs := []any{"generation", j.fence, "sales", len(j.sales)}
	if j.owner.Shards > 1 {
		attrs = append(attrs, "shard", int(j.shard))
	}
	attrs = append(attrs, changes...)
	j.cfg.Log.Info("rebuild: Redis is verified", attrs...)
	if len(j.notInSQL) > 0 {
		slices.Sort(j.notInSQL)
		j.status.notInSQL(j.notInSQL)
		j.cfg.Log.Warn("rebuild: the database does not have these sales of Redis, which sell nothing: create each again "+
			"with its id and settings, then run sluice sale rebuild --all", "sales", j.notInSQL)
	}
	return nil
}
