// Package archive moves the orders of ended sales from SQL to compressed files. The sale itself stays in SQL, with the
// numbers of its orders.
//
// An archive consists of parts. Each run writes the rows that are still in SQL to a new file, reads the file again to
// verify it, records it in SQL, and removes the rows that are equal to the file's, in batches. Only the first part is
// needed unless a run ends early or a row changes meanwhile; then a later part has the rest, and the next run can be on
// another machine. The rows of a part that is not recorded are in SQL.
//
// Before the audit, the sale is closed in SQL and in every shard of Redis, so that Redis accepts no order of it after
// the audit, also if a clock is set back. A closed sale cannot be opened again, and a load from SQL stores it as
// closed.
//
// The first recorded part marks the sale as archived. From then on no process loads it into Redis, and no row is
// removed before Redis has dropped it: a rebuild of Redis would treat an order that is in Redis and not a row as one
// that SQL has lost.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Config configures New. All fields but Log and Step are required.
type Config struct {
	Store *store.Store
	// Audit counts the units of a sale in both stores.
	Audit func(ctx context.Context, saleID string) (audit.Report, error)
	// Undelivered reports whether webhooks or dead events of the sale wait.
	Undelivered func(ctx context.Context, saleID string) (bool, error)
	Stock       *admission.Stock
	Dir         string       // of the files; it must exist
	Log         *slog.Logger // nil: slog.Default
	// Step, if set, is called before each step. It is for tests.
	Step func(name string)
}

// Archiver archives sales.
type Archiver struct{ cfg Config }

// New returns an Archiver.
func New(cfg Config) *Archiver {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Step == nil {
		cfg.Step = func(string) {}
	}
	return &Archiver{cfg}
}

// maxParts bounds the parts of one run. Each later part has the rows that changed while an earlier one was written.
const maxParts = 5

// Archive archives a sale, or continues an earlier run, and returns the result. An archived sale is returned unchanged.
// Errors: sale.ErrNotFound; one that wraps sale.ErrConflict and gives the reasons if the sale cannot be archived yet,
// and nothing has changed, except that a sale past its closing time may be closed; sale.ErrUnavailable; or an error of
// the file system. After each, the call may be repeated.
func (a *Archiver) Archive(ctx context.Context, saleID string) (store.Archive, error) {
	found, err := a.cfg.Store.Archive(ctx, saleID)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		if err := a.check(ctx, saleID); err != nil {
			return store.Archive{}, err
		}
	case err != nil:
		return store.Archive{}, err
	case !found.EndedAt.IsZero():
		return found, nil
	}
	next := len(found.Parts) + 1
	for last := next + maxParts; next < last; next++ {
		left, err := a.part(ctx, saleID, next)
		if err != nil {
			return store.Archive{}, fmt.Errorf("archive sale %s: %w", saleID, err)
		}
		if !left {
			if err := a.cfg.Store.EndArchive(ctx, saleID); err != nil {
				return store.Archive{}, err
			}
			return a.cfg.Store.Archive(ctx, saleID)
		}
	}
	return store.Archive{}, fmt.Errorf("archive sale %s: its rows keep changing: %w", saleID, sale.ErrConflict)
}

// check returns an error with all reasons why a sale cannot be archived.
func (a *Archiver) check(ctx context.Context, saleID string) error {
	if sale.IsRehearsal(saleID) {
		return fmt.Errorf("sale %s is a rehearsal, which sluice rehearse clean removes: %w", saleID, sale.ErrConflict)
	}
	reasons, err := a.cfg.Store.Unsettled(ctx, saleID)
	if err == nil && len(reasons) == 0 {
		reasons, err = a.closeSale(ctx, saleID)
	}
	if err != nil {
		return fmt.Errorf("archive sale %s: %w", saleID, err)
	}
	if len(reasons) == 0 {
		waiting, err := a.cfg.Undelivered(ctx, saleID)
		if err != nil {
			return err
		}
		if waiting {
			reasons = append(
				reasons,
				"webhooks or dead events of its orders wait (sluice webhook list, sluice dead --group NAME list)",
			)
		}
		report, err := a.cfg.Audit(ctx, saleID)
		if err != nil {
			return err
		}
		if !report.Balanced {
			reasons = append(reasons, "its audit does not balance: "+strings.Join(report.Differences, "; "))
		}
		if n := report.Ready + report.Delayed + report.Leased + report.Dead + report.Unbacked; n > 0 {
			reasons = append(reasons, fmt.Sprintf("orders in the queue or dead: %d", n))
		}
	}
	if len(reasons) > 0 {
		return fmt.Errorf("sale %s cannot be archived: %s: %w", saleID, strings.Join(reasons, "; "), sale.ErrConflict)
	}
	return nil
}

// closeSale closes a sale that has ended, in SQL and then in every part in Redis. It returns the reasons why the sale
// cannot be archived; empty: Redis accepts no further order of it.
func (a *Archiver) closeSale(ctx context.Context, saleID string) (reasons []string, err error) {
	def, _, err := a.cfg.Store.Sale(ctx, saleID)
	if err != nil {
		return nil, err
	}
	if def.Switch != sale.Closed {
		switch closed, err := a.cfg.Stock.Closed(ctx, def); {
		case err != nil:
			return nil, err
		case !closed:
			return []string{"by the clock of Redis it has not ended: repeat the command later, or close it with " +
				"sluice sale close"}, nil
		}
		if def, err = a.cfg.Store.SetSwitch(ctx, saleID, sale.Closed); err != nil {
			return nil, err
		}
	}
	if err = a.cfg.Stock.Update(ctx, def); errors.Is(err, admission.ErrNotLoaded) {
		return []string{"Redis does not hold it completely; a backend loads it when both stores are available"}, nil
	}
	return nil, err
}

// part writes, verifies and records a part, and removes its rows. left reports whether a row may be left.
func (a *Archiver) part(ctx context.Context, saleID string, number int) (left bool, err error) {
	a.cfg.Step("write")
	a.cfg.Log.Info("writing the rows to a file", "sale", saleID, "part", number)
	part, err := a.write(ctx, saleID, number)
	if err != nil {
		return false, err
	}
	a.cfg.Step("verify")
	path := a.path(part.File)
	orders, payments, err := read(path, func(row) error { return nil })
	if err == nil && (orders != part.Orders || payments != part.Payments) {
		err = fmt.Errorf("%s: it has %d orders and %d payments, want %d and %d",
			path, orders, payments, part.Orders, part.Payments)
	}
	if err != nil {
		return false, fmt.Errorf("the file cannot be verified: %w", err)
	}
	if orders+payments > 0 || number == 1 {
		a.cfg.Step("record")
		if err := a.cfg.Store.BeginPart(ctx, saleID, part); err != nil {
			return false, err
		}
	} else if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err // of an empty part: an earlier run has removed all rows
	}
	a.cfg.Step("redis")
	def, _, err := a.cfg.Store.Sale(ctx, saleID)
	if err == nil {
		err = a.cfg.Stock.Remove(ctx, def)
	}
	if err != nil {
		return false, err
	}
	if orders+payments == 0 {
		return false, nil
	}
	a.cfg.Log.Info("removing the rows that are in the file", "sale", saleID, "rows", orders+payments)
	removed, err := a.remove(ctx, saleID, path)
	if err != nil {
		return false, err
	}
	a.cfg.Log.Info("archived",
		"sale", saleID, "file", path, "orders", orders, "payments", payments, "removed", removed)
	return removed < orders+payments, nil
}

const (
	removeBatch = 1000              // rows that one transaction removes
	logEvery    = 100 * removeBatch // rows between two lines of the log about the progress
)

// remove removes the rows of a file from SQL: first the orders, as in the file, because a repeated callback of a
// payment finds its outcome as long as either row exists.
func (a *Archiver) remove(ctx context.Context, saleID, path string) (removed int64, err error) {
	var batch []store.Archived
	payments := false // in the batch
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		a.cfg.Step("remove")
		remove := a.cfg.Store.RemoveOrders
		if payments {
			remove = a.cfg.Store.RemovePayments
		}
		n, err := remove(ctx, saleID, batch)
		removed += n
		if removed/logEvery > (removed-n)/logEvery {
			a.cfg.Log.Info("removing rows", "sale", saleID, "removed", removed)
		}
		batch = batch[:0]
		return err
	}
	_, _, err = read(path, func(r row) error {
		if isPayment := r.Payment != nil; isPayment != payments || len(batch) == removeBatch {
			if err := flush(); err != nil {
				return err
			}
			payments = isPayment
		}
		one, err := r.archived()
		batch = append(batch, one)
		return err
	})
	if err == nil {
		err = flush()
	}
	return removed, err
}
