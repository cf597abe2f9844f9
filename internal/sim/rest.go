package sim

import (
	"context"
	"testing/synctest"
	"time"

	"sluice/backend/admission"
	"sluice/backend/keyspace"
	"sluice/backend/ledger"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

// rests reports whether there is nothing left to do, and nobody who would make it.
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
	for _, lane := range w.space.All() {
		if len(w.list(lane.Ready()))+len(w.entries(lane))+len(w.zset(lane.Delayed()))+len(w.zset(lane.Leases())) > 0 {
			return false
		}
	}
	all, err := w.books.units()
	if err != nil {
		return false
	}
	for id, u := range all {
		if number(w.hash(w.space.LaneOf(id).Sale(id))["stock"]) != u.stock {
			return false
		}
	}
	rows, err := w.store.Returning(context.Background(), 0, 0, 1)
	return err == nil && len(rows) == 0
}

// checkRest holds a system at rest against what it must have come to.
func (w *world) checkRest() {
	w.mini.SetTime(time.Now())
	all, err := w.books.units()
	if err != nil {
		w.violate("the observer cannot read SQL: %v", err)
		return
	}
	w.result.Rows += len(w.rows)
	dead := w.deadRows() // by lane; the unbacked ones too
	for _, s := range w.Shops {
		if _, created := all[s.ID]; !created {
			continue // the operator did not live to do it
		}
		report, err := ledger.New(admission.NewStock(w.redis, w.space), w.store).Audit(context.Background(), s.ID)
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
		dead[w.space.LaneOf(s.ID)] += report.Dead + report.Unbacked
		w.result.Dead += int(report.Dead + report.Unbacked)
	}
	for _, lane := range w.space.All() {
		for _, key := range []string{lane.Attempts(), lane.Crashes()} {
			if left := w.hash(key); len(left) > 0 {
				w.violate("%s still holds %v", key, left)
			}
		}
		stats, err := w.queue(w.redis, lane, queue.Config{}).Stats(context.Background())
		if err != nil || stats.Dead != dead[lane] {
			w.violate("the queue of lane %d counts %d dead orders and the audits %d, %v", lane, stats.Dead, dead[lane], err)
		}
	}
}

// deadRows counts the dead letters of a unit whose order is a row all the same, by lane: its workers died behind the commit. The audit counts the row.
func (w *world) deadRows() map[keyspace.Lane]int64 {
	dead := map[keyspace.Lane]int64{}
	for _, lane := range w.space.All() {
		at := map[sale.OrderID]spot{}
		w.queued(lane, at)
		for id, s := range at {
			if r, isRow := w.rows[id]; isRow && !r.died && s.place == "dead" && s.unit {
				dead[lane]++
			}
		}
	}
	return dead
}
