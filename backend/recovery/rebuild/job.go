package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// job is one rebuild under way.
type job struct {
	*Rebuilder
	client *redis.Client // talks to one server only
	runID  string
	fence  int64
	stock  *admission.Stock
	sales  []*saleCount
	byID   map[string]*saleCount

	kept    kept
	batches map[keyspace.Shard][]string
}

func (j *job) run(ctx context.Context, only []string) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"begin", func(ctx context.Context) error { return j.begin(ctx, &only) }},
		{"fence", func(ctx context.Context) error { return j.store.BeginGeneration(ctx, j.fence) }},
		{"hold", func(ctx context.Context) error { return j.suspendSales(ctx, only) }},
		{"queue", j.readQueues},
		{"count", j.countSales},
		{"letters", j.writeLetters},
		{"sales", j.writeSales},
		{"numbers", j.skipOrderNumbers},
		{"swap", j.swapQueues},
		{"journals", j.awaitJournals},
		{"audit", j.auditSales},
		{"open", j.resumeSales},
		{"stamp", j.finish},
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

// call runs a script of the rebuild. Every one of them is refused when another rebuild has begun.
func (j *job) call(ctx context.Context, script string, keys []string, args ...any) error {
	answer, err := j.scripts[script].Run(ctx, j.client, keys, append([]any{j.fence}, args...)...).Text()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", sale.ErrUnavailable, err)
	case answer == "fenced":
		return errFenced
	case answer == "unverified":
		return errNotVerified
	case answer != "ok":
		return fmt.Errorf("the script answered %q", answer)
	}
	return nil
}

// begin holds every shard. Where something is not verified, the rest of it is not either, and all is rebuilt.
func (j *job) begin(ctx context.Context, only *[]string) error {
	for _, shard := range j.space.All() {
		verified := ""
		if len(*only) > 0 {
			verified = j.runID
		}
		err := j.call(ctx, "begin", []string{shard.Guard(), shard.RebuildReady()}, verified)
		if errors.Is(err, errNotVerified) {
			*only = nil
			err = j.call(ctx, "begin", []string{shard.Guard(), shard.RebuildReady()}, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// last makes sure that no other rebuild has begun, and that Redis was not emptied since this one has. A fence that is gone does not come back.
func (j *job) checkFence(ctx context.Context) error {
	for _, shard := range j.space.All() {
		if err := j.call(ctx, "suspend_sales", []string{shard.Guard()}); err != nil {
			return err
		}
	}
	return nil
}

var errNotVerified = errors.New("the data is not verified")

// hold finds out what is to be rebuilt and takes it off the market.
func (j *job) suspendSales(ctx context.Context, only []string) error {
	standings, err := j.store.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	j.byID = map[string]*saleCount{}
	for _, s := range standings {
		if len(only) > 0 && !slices.Contains(only, s.ID) {
			continue
		}
		a := newSaleCount(s.Sale, s.Sold, j.space.ShardOf(s.ID))
		j.sales, j.byID[s.ID] = append(j.sales, a), a
	}
	for _, shard := range j.space.All() {
		keys := []string{shard.Guard()}
		for _, a := range j.sales {
			if a.shard == shard {
				keys = append(keys, shard.Sale(a.def.ID))
			}
		}
		if err := j.call(ctx, "suspend_sales", keys); err != nil {
			return err
		}
	}
	return nil
}

// skipNumbers keeps order numbers from being given twice: backends still hold blocks of them that this Redis may know nothing of.
func (j *job) skipOrderNumbers(ctx context.Context) error {
	return admission.NewSequencer(j.client, j.space, nil).StartGeneration(ctx, j.fence)
}

// awaitJournals gives the backends that are alive the time to bring what they have accepted, and Redis has lost.
func (j *job) awaitJournals(ctx context.Context) error {
	deadline := time.Now().Add(j.cfg.JournalWait)
	for {
		if err := j.checkFence(ctx); err != nil { // else nobody would know for as long as this waits
			return err
		}
		journals, err := j.store.Journals(ctx)
		if err != nil {
			return err
		}
		waiting := slices.DeleteFunc(journals, func(o journal.Status) bool { return o.Generation == j.fence || o.Silent > alive })
		if len(waiting) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			j.cfg.Log.Warn("rebuild: not all journals were brought in time; theirs will be adopted later", "journals", len(waiting))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// auditSales proves the count of every sale while nothing moves. One that does not balance is paused.
func (j *job) auditSales(ctx context.Context) error {
	books := audit.New(j.stock, j.store)
	j.status.total(len(j.sales))
	ids := map[keyspace.Shard][]string{}
	for _, a := range j.sales {
		ids[a.shard] = append(ids[a.shard], a.def.ID)
	}
	reports := map[keyspace.Shard]map[string]audit.Report{}
	for shard := range ids {
		var err error
		if reports[shard], err = books.AuditShard(ctx, shard, ids[shard]); err != nil {
			return err
		}
	}
	if err := j.checkFence(ctx); err != nil { // what was counted is not what was written: no reason to pause a sale
		return err
	}
	for _, a := range j.sales {
		report := reports[a.shard][a.def.ID]
		a.report = report
		j.status.done(1)
		if report.Balanced {
			continue
		}
		a.why = "it does not balance after a rebuild of Redis: " + strings.Join(report.Differences, "; ")
		j.cfg.Log.Error("rebuild: a sale does not balance", "sale", a.def.ID, "differences", report.Differences, "orders", report.Orders)
		if a.def.Switch != sale.On {
			continue
		}
		if err := j.cfg.Pause(ctx, a.def.ID, a.why); err != nil && !errors.Is(err, sale.ErrConflict) {
			return err
		}
		a.def.Switch = sale.Paused
	}
	return nil
}

// openSales gives back version and switch. The version is the one whose stock was counted: a later one is applied by the reconcile loop.
func (j *job) resumeSales(ctx context.Context) error {
	for _, a := range j.sales {
		if err := j.call(ctx, "resume_sale", []string{a.shard.Guard(), a.shard.Sale(a.def.ID)}, a.def.Version, string(a.def.Switch)); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) finish(ctx context.Context) error {
	for _, shard := range j.space.All() {
		if err := j.call(ctx, "finish", []string{shard.Guard()}, j.runID, len(j.space.All())); err != nil {
			return err
		}
	}
	var found []any
	for _, a := range j.sales {
		j.status.sale(a)
		if a.changed() {
			found = append(found, slog.Group(a.def.ID, "requeued", len(a.requeued), "unbacked", len(a.unbacked), "places", a.corrected))
		}
	}
	j.cfg.Log.Info("rebuild: Redis is verified", append([]any{"generation", j.fence, "sales", len(j.sales)}, found...)...)
	return nil
}
