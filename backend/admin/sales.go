package admin

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// View is a sale as admins see it.
type View struct {
	sale.Sale            // as stored in SQL
	Sold      int64      // orders that are rows
	State     sale.State // as buyers see it; while Live is nil, computed from SQL and this machine's clock
	// Live is the sale in Redis with the units left. It is nil if Redis does not hold the sale or does not answer. A
	// version lower than the sale's means that the last change is not applied yet.
	Live *admission.View
	// Paused is the admin who paused the sale and the reason. It is empty if the sale is not paused, and in lists.
	Paused string
	// Archive is set if the sale is archived or its archiving is in progress, and nil in lists.
	Archive *store.Archive
}

// Create stores a sale and loads it into Redis. An empty id becomes that of sale.NewID, PerBuyer 0 becomes 1, and the
// switch is on. Repeating the call with the same sale returns the existing one, also if it was restocked, paused or
// closed meanwhile.
//
// Errors: *sale.InvalidError; sale.ErrExists if a different sale has the id; a *PendingError; or one that wraps
// sale.ErrUnavailable, and nothing has changed.
func (s *Service) Create(ctx context.Context, wanted sale.Sale) (View, error) {
	if wanted.ID == "" {
		wanted.ID = sale.NewID()
	}
	wanted.PerBuyer = cmp.Or(wanted.PerBuyer, 1)
	if sale.IsRehearsal(wanted.ID) {
		return View{}, sale.Invalid("id",
			"must not begin with "+sale.RehearsalPrefix+", which is reserved for rehearsals")
	}
	return s.create(ctx, wanted)
}

// create is Create for any id.
func (s *Service) create(ctx context.Context, wanted sale.Sale) (View, error) {
	wanted.Switch = sale.On
	if err := spread.ValidateSpread(max(wanted.Spread, 1), s.dead.space.Shards); err != nil {
		return View{}, sale.Invalid("spread", err.Error())
	}
	created, err := s.store.CreateSale(ctx, wanted)
	if err != nil {
		return View{}, err
	}
	s.knownMu.Lock()
	s.created = append(s.created, created)
	s.known[created.ID] = created
	s.knownMu.Unlock()
	return s.applied(ctx, created, nil)
}

// SetSwitch sets the switch of a sale: a paused sale accepts no orders until it is on again, and a closed one stays
// closed. Accepted orders are processed. It changes nothing if the sale has this switch. Errors: sale.ErrNotFound;
// a *store.RefusedError if the sale is closed; a *PendingError; or one that wraps sale.ErrUnavailable, and nothing has
// changed.
func (s *Service) SetSwitch(ctx context.Context, id string, to sale.Switch) (View, error) {
	changed, err := s.store.SetSwitch(ctx, id, to)
	return s.applied(ctx, changed, err)
}

// Open opens a scheduled sale now. It changes nothing if the sale has opened. Errors as of SetSwitch, with a
// *store.RefusedError also for a sale past its closing time.
func (s *Service) Open(ctx context.Context, id string) (View, error) {
	changed, err := s.store.OpenSale(ctx, id, time.Now())
	return s.applied(ctx, changed, err)
}

// Describe replaces the picture and the description of a sale, also of one that is closed. Errors: *sale.InvalidError;
// and those of SetSwitch, without the *store.RefusedError.
func (s *Service) Describe(ctx context.Context, id string, to sale.Details) (View, error) {
	changed, err := s.store.SetDetails(ctx, id, to)
	return s.applied(ctx, changed, err)
}

// Restock adds units to a sale. With a request key the call may be repeated; it adds the units once. Errors:
// *sale.InvalidError if add is below 1; and those of SetSwitch, with a *store.RefusedError also for a stock above
// sale.MaxStock and for a key that was used with another number.
func (s *Service) Restock(ctx context.Context, id string, add int64, requestKey string) (View, error) {
	changed, err := s.store.Restock(ctx, id, add, requestKey)
	return s.applied(ctx, changed, err)
}

// Show returns one sale. Without Redis, Live is nil. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable
// if SQL does not answer.
func (s *Service) Show(ctx context.Context, id string) (View, error) {
	found, sold, err := s.store.Sale(ctx, id)
	if err != nil {
		return View{}, err
	}
	v := newView(found, sold, nil)
	if live, err := s.stock.View(ctx, id); err == nil {
		v = newView(found, sold, &live)
	}
	if found.Switch == sale.Paused {
		v.Paused = s.pausedBy(ctx, id)
	}
	if found.Switch == sale.Closed { // archived sales are closed; Archived may not report this one yet
		a, err := s.store.Archive(ctx, id)
		switch {
		case err == nil:
			v.Archive = &a
		case !errors.Is(err, sale.ErrNotFound):
			return View{}, err
		}
	}
	return v, nil
}

// pausedBy reads the admin and the reason from the action log. It returns "" if the log cannot be read.
func (s *Service) pausedBy(ctx context.Context, id string) string {
	last, err := s.store.LastLog(ctx, id, "sale.pause", "sale.resume")
	if err != nil || last.Action != "sale.pause" {
		return ""
	}
	_, reason, _ := strings.Cut(last.Detail, ": ")
	if reason == "" {
		return last.Actor
	}
	return last.Actor + ": " + reason
}

// List returns all sales that are not archived, oldest first. Errors as of Show.
func (s *Service) List(ctx context.Context) ([]View, error) {
	summaries, err := s.store.SaleSummaries(ctx)
	if err != nil {
		return nil, err
	}
	live, _ := s.stock.List(ctx) // without Redis, Live is nil
	return newViews(summaries, live), nil
}

// Page returns one page of sales, newest first. Errors as of Show.
func (s *Service) Page(ctx context.Context, q store.SalesQuery) ([]View, error) {
	summaries, err := s.store.SalesPage(ctx, q)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(summaries))
	for i, summary := range summaries {
		ids[i] = summary.ID
	}
	live, _ := s.stock.Views(ctx, ids) // without Redis, Live is nil
	return newViews(summaries, live), nil
}

func newViews(summaries []store.SaleSummary, live []admission.View) []View {
	byID := make(map[string]*admission.View, len(live))
	for i := range live {
		byID[live[i].ID] = &live[i]
	}
	all := make([]View, len(summaries))
	for i, summary := range summaries {
		all[i] = newView(summary.Sale, summary.Sold, byID[summary.ID])
	}
	return all
}

func newView(s sale.Sale, sold int64, live *admission.View) View {
	v := View{Sale: s, Sold: sold, Live: live}
	if live != nil {
		v.State = live.State
	} else {
		v.State = s.StateAt(time.Now(), s.Stock-sold)
	}
	return v
}

// applied applies the result of a change in SQL to Redis and returns the sale. It returns the error of the change.
func (s *Service) applied(ctx context.Context, stored sale.Sale, err error) (View, error) {
	if err != nil {
		return View{}, err
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := s.apply(ctx, stored); err != nil {
		s.log.Warn("a change of a sale is stored, and Redis does not have it yet", "sale", stored.ID, "err", err)
		return newView(stored, 0, nil), &PendingError{Sale: stored, Cause: err}
	}
	v, err := s.Show(ctx, stored.ID)
	if errors.Is(err, sale.ErrUnavailable) { // without the PendingError, a client would repeat a restock
		return newView(stored, 0, nil), &PendingError{Sale: stored, Cause: err}
	}
	return v, err
}

// apply makes Redis hold at least this version of a sale, unless the sale is archived.
func (s *Service) apply(ctx context.Context, stored sale.Sale) error {
	update := func() error { return s.stock.Update(ctx, stored) }
	return apply(ctx, s.store, s.stock, admission.PartsOf(stored), update)
}

// apply updates parts of one sale in Redis. If Redis does not hold them, it loads them first, unless the sale is
// archived, or is archived meanwhile. LoadAll does nothing if another process has loaded them in the meantime, possibly
// in an older version, so the update follows.
func apply(ctx context.Context, db Store, stock Stock, parts []admission.SalePart, update func() error) error {
	err := update()
	if !errors.Is(err, admission.ErrNotLoaded) {
		return err
	}
	if archived, err := isArchived(ctx, db, parts[0].ID); err != nil || archived {
		return err
	}
	if err := stock.LoadAll(ctx, parts, db.OrdersOf); err != nil {
		return err
	}
	archived, err := isArchived(ctx, db, parts[0].ID)
	if err != nil {
		return err
	}
	if archived {
		return removeParts(ctx, stock, parts)
	}
	return update()
}

func removeParts(ctx context.Context, stock Stock, parts []admission.SalePart) error {
	var failures []error
	for _, p := range parts {
		failures = append(failures, stock.RemoveFrom(ctx, stock.ShardOf(p.Part()), p.ID))
	}
	return errors.Join(failures...)
}

// isArchived reports whether a sale is archived, so that Redis must not hold it.
func isArchived(ctx context.Context, db Store, id string) (bool, error) {
	_, err := db.Archive(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
