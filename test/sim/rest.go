package sim

import (
	"context"
	"testing/synctest"
	"time"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// rests reports whether no work is left, and no process that creates any.
func (w *world) rests() bool {
	synctest.Wait()
	for _, r := range w.roles {
		if r.once && (r.now == nil || !w.over(r.now)) {
			return false
		}
	}
	if len(w.delayed) > 0 || !w.verified() || !w.adopted() || w.overdue() {
		return false
	}
	for _, shard := range w.space.All() {
		if len(w.list(shard.Ready()))+len(w.entries(shard))+len(w.zset(shard.Delayed()))+len(w.zset(shard.Leases())) > 0 {
			return false
		}
	}
	all, err := w.books.units()
	if err != nil {
		return false
	}
	allocations, err := w.books.allocations()
	if err != nil {
		return false
	}
	for id, u := range all {
		stock := int64(0)
		for _, part := range w.shop(id).parts() {
			def := w.hash(w.space.ShardOfSegment(id, part.Segment).Sale(id))
			stock += number(def["stock"])
			if number(def["version"]) != u.version {
				return false
			}
			if part.Spread > 1 && (def["out"] != "" || number(def["allocation"]) != allocations[id][part.Segment].Version) {
				return false
			}
		}
		if stock != u.stock {
			return false
		}
	}
	rows, err := w.store.Returning(context.Background(), 0, 0, 1)
	return err == nil && len(rows) == 0
}

// checkRest checks the invariants of a system at rest.
func (w *world) checkRest() {
	w.mini.SetTime(time.Now())
	all, err := w.books.units()
	if err != nil {
		w.violate("the observer cannot read SQL: %v", err)
		return
	}
	w.result.Rows += len(w.rows)
	dead := w.deadRows() // by shard; the unbacked ones too
	for _, s := range w.Shops {
		if _, created := all[s.ID]; !created {
			continue // the admin process crashed before
		}
		report, err := audit.New(admission.NewStock(admission.StockConfig{Client: w.redis, Space: w.space}), w.store).
			Audit(context.Background(), s.ID)
		if err != nil {
			w.violate("the audit failed: %v", err)
			return
		}
		w.checkAudit(report)
		if report.Stock != all[s.ID].stock {
			w.violate("Redis has %d units of %s in all and SQL %d", report.Stock, s.ID, all[s.ID].stock)
		}
		if report.Ready+report.Delayed+report.Leased+report.Returning != 0 {
			w.violate("not at rest: %+v", report)
		}
		if report.InTransfer != 0 {
			w.violate("units in transfer at rest: %+v", report)
		}
		for i, part := range append([]audit.Report{report}, report.Segments...) {
			switch {
			case s.Spread < 2:
				dead[w.space.ShardOf(s.ID)] += part.Dead + part.Unbacked
			case i > 0:
				dead[w.space.ShardOfSegment(s.ID, i-1)] += part.Dead + part.Unbacked
			}
		}
		w.result.Dead += int(report.Dead + report.Unbacked)
	}
	for _, shard := range w.space.All() {
		for _, key := range []string{shard.Attempts(), shard.Crashes()} {
			if left := w.hash(key); len(left) > 0 {
				w.violate("%s still holds %v", key, left)
			}
		}
		stats, err := w.queue(w.redis, shard, queue.Config{}).Stats(context.Background())
		if err != nil || stats.Dead != dead[shard] {
			w.violate("the queue of shard %d counts %d dead orders and the audits %d, %v", shard, stats.Dead, dead[shard], err)
		}
	}
}

// deadRows counts, by shard, the dead letters of orders that are rows: their workers crashed after the commit. The
// audit counts the row.
func (w *world) deadRows() map[keyspace.Shard]int64 {
	dead := map[keyspace.Shard]int64{}
	for _, shard := range w.space.All() {
		at := map[sale.OrderID]spot{}
		w.queued(shard, at)
		for id, s := range at {
			if r, isRow := w.rows[id]; isRow && !r.died && s.place == "dead" && s.unit {
				dead[shard]++
			}
		}
	}
	return dead
}
