package admin

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// View is a sale as an operator sees it.
type View struct {
	sale.Sale            // as SQL has it
	Sold      int64      // its orders that are rows
	State     sale.State // what a buyer sees; while Live is nil, what SQL and this machine's clock say
	// Live is the sale as Redis holds it, with the units left; nil while Redis does not hold it or does not answer. A lower version than the sale's
	// says that the last change has not taken effect yet.
	Live *admission.View
	// Paused is who paused the sale and why; empty while it is not paused, and in a list.
	Paused string
}

// Create stores a sale and loads it into Redis. Without an id it gets a short random one; per_buyer 0 means 1; the switch is on. To create the very same
// sale again answers it, so that a request whose answer was lost can be repeated.
//
// Errors: *sale.InvalidError; sale.ErrExists when another sale has the id; a *PendingError; or one that wraps sale.ErrUnavailable, and nothing has changed.
func (d *Desk) Create(ctx context.Context, actor string, s sale.Sale) (View, error) {
	if s.ID == "" {
		s.ID = newID()
	}
	if s.PerBuyer == 0 {
		s.PerBuyer = 1
	}
	if sale.IsRehearsal(s.ID) {
		return View{}, &sale.InvalidError{Fields: []sale.FieldError{{Field: "id", Detail: "must not begin with " + sale.RehearsalPrefix + ": such names are for rehearsals"}}}
	}
	return d.make(ctx, actor, s)
}

// make is Create for any id.
func (d *Desk) make(ctx context.Context, actor string, s sale.Sale) (View, error) {
	s.Switch, s.Version = sale.On, 1
	s.OpensAt, s.ClosesAt = s.OpensAt.UTC().Truncate(time.Millisecond), s.ClosesAt.UTC().Truncate(time.Millisecond)
	if err := s.Validate(); err != nil {
		return View{}, err
	}
	created, err := d.store.CreateSale(store.WithActor(ctx, actor), s)
	if errors.Is(err, sale.ErrExists) {
		found, _, ferr := d.store.Sale(ctx, s.ID)
		if ferr != nil {
			return View{}, ferr
		}
		created = found
		found.Switch, found.Version = s.Switch, s.Version // what was done to it since does not make it another sale
		if found != s {
			return View{}, err
		}
		err = nil
	}
	if err != nil {
		return View{}, err
	}
	d.known.add(created.ID)
	return d.applied(ctx, created)
}

// newID makes 50 random bits readable: ten characters of a-z and 2-7.
func newID() string {
	var b [7]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:10]
}

// Pause stops accepting orders until Resume. What is accepted already goes its way. Errors as of Resume.
func (d *Desk) Pause(ctx context.Context, actor, id string) (View, error) {
	return d.turn(ctx, actor, id, sale.Paused)
}

// Resume accepts orders again. To ask for what is so already changes nothing. Errors: sale.ErrNotFound; sale.ErrConflict when the sale is closed; a
// *PendingError; or one that wraps sale.ErrUnavailable, and nothing has changed.
func (d *Desk) Resume(ctx context.Context, actor, id string) (View, error) {
	return d.turn(ctx, actor, id, sale.On)
}

// Open opens a sale now that was to open later. One that has opened stays as it is. Errors as of Resume, with sale.ErrConflict also for one whose time is over.
func (d *Desk) Open(ctx context.Context, actor, id string) (View, error) {
	changed, err := d.store.OpenSale(store.WithActor(ctx, actor), id, time.Now())
	if err != nil {
		return View{}, err
	}
	return d.applied(ctx, changed)
}

// Close ends a sale for good. Errors as of Resume.
func (d *Desk) Close(ctx context.Context, actor, id string) (View, error) {
	return d.turn(ctx, actor, id, sale.Closed)
}

func (d *Desk) turn(ctx context.Context, actor, id string, to sale.Switch) (View, error) {
	changed, err := d.store.SetSwitch(store.WithActor(ctx, actor), id, to)
	if err != nil {
		return View{}, err
	}
	return d.applied(ctx, changed)
}

// Restock puts more units on sale. With a request key it may be repeated: the second time adds nothing. Errors: *sale.InvalidError when add is below 1; and
// those of Resume, with sale.ErrConflict also for a stock above sale.MaxStock and for a key that came with another number before.
func (d *Desk) Restock(ctx context.Context, actor, id string, add int64, requestKey string) (View, error) {
	changed, err := d.store.Restock(store.WithActor(ctx, actor), id, add, requestKey)
	if err != nil {
		return View{}, err
	}
	return d.applied(ctx, changed)
}

// Show looks at one sale. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable when SQL does not answer; without Redis there is a View all the same.
func (d *Desk) Show(ctx context.Context, id string) (View, error) {
	found, sold, err := d.store.Sale(ctx, id)
	if err != nil {
		return View{}, err
	}
	v := view(found, sold, nil)
	if live, err := d.stock.View(ctx, id); err == nil {
		v = view(found, sold, &live)
	}
	if found.Switch == sale.Paused {
		v.Paused = d.pausedBy(ctx, id)
	}
	return v, nil
}

// pausedBy reads the desk log, which is worth no error.
func (d *Desk) pausedBy(ctx context.Context, id string) string {
	last, err := d.store.LastLog(ctx, id, "sale.pause", "sale.resume")
	if err != nil || last.Action != "sale.pause" {
		return ""
	}
	_, why, _ := strings.Cut(last.Detail, ": ")
	if why == "" {
		return last.Actor
	}
	return last.Actor + ": " + why
}

// List looks at every sale, the oldest first. Errors as of Show.
func (d *Desk) List(ctx context.Context) ([]View, error) {
	standings, err := d.store.SaleSummaries(ctx)
	if err != nil {
		return nil, err
	}
	lives, _ := d.stock.List(ctx) // without Redis the list says what SQL knows
	return views(standings, lives), nil
}

// Page looks at one page of sales, the newest first. Errors as of Show.
func (d *Desk) Page(ctx context.Context, q store.SalesQuery) ([]View, error) {
	standings, err := d.store.SalesPage(ctx, q)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(standings))
	for i, s := range standings {
		ids[i] = s.ID
	}
	lives, _ := d.stock.Views(ctx, ids) // as in List
	return views(standings, lives), nil
}

func views(standings []store.SaleSummary, lives []admission.View) []View {
	byID := make(map[string]*admission.View, len(lives))
	for i := range lives {
		byID[lives[i].ID] = &lives[i]
	}
	all := make([]View, len(standings))
	for i, s := range standings {
		all[i] = view(s.Sale, s.Sold, byID[s.ID])
	}
	return all
}

func view(s sale.Sale, sold int64, live *admission.View) View {
	v := View{Sale: s, Sold: sold, Live: live}
	if live != nil {
		v.State = live.State
	} else {
		v.State = s.StateAt(time.Now(), s.Stock-sold)
	}
	return v
}

// applied brings a sale that SQL holds to Redis and looks at it.
func (d *Desk) applied(ctx context.Context, s sale.Sale) (View, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	if err := d.apply(ctx, s); err != nil {
		return view(s, 0, nil), &PendingError{Sale: s, Cause: err}
	}
	return d.Show(ctx, s.ID)
}

// apply makes Redis hold at least this version of a sale. Load leaves alone what another process has loaded meanwhile, perhaps an older version:
// hence the second Sync.
func (d *Desk) apply(ctx context.Context, s sale.Sale) error {
	err := d.stock.Update(ctx, s)
	if !errors.Is(err, admission.ErrNotLoaded) {
		return err
	}
	err = d.stock.Load(ctx, s, func(yield func(sale.Order) error) error { return d.store.OrdersOf(ctx, s.ID, yield) })
	if err != nil {
		return fmt.Errorf("load sale %s: %w", s.ID, err)
	}
	return d.stock.Update(ctx, s)
}
