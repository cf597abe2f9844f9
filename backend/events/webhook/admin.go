package webhook

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/duration"
	"sluice/internal/outbound"
)

// Admin is the Store with the changes that admins make. Each change is in the action log with the actor and the reason
// of its context. It is safe for concurrent use.
type Admin struct {
	*Store
	client *outbound.Client
}

// NewAdmin returns an Admin. client is that of the Sender; it validates the URLs of endpoints.
func NewAdmin(db *Store, client *outbound.Client) *Admin { return &Admin{db, client} }

// Bounds of the settings of an endpoint.
const (
	maxTitle   = 200 // bytes
	maxSales   = 100
	maxSecrets = 7 * 24 * time.Hour // for which an old secret may still sign
)

// DefaultKeep is how long an old secret signs in addition to the new one.
const DefaultKeep = 24 * time.Hour

// Settings are the settings of an endpoint. A nil field stays unchanged, or empty in a new endpoint.
type Settings struct {
	URL, Title   *string
	Types, Sales *[]string // empty: all
}

// apply checks the settings and sets them in e. The error is a *sale.InvalidError.
func (d *Admin) apply(e *Endpoint, s Settings) error {
	bad := &sale.InvalidError{}
	if s.URL != nil {
		if err := d.client.CheckURL(*s.URL); err != nil {
			bad.Add("url", err.Error())
		}
		if e.URL != *s.URL {
			e.URL = *s.URL
			e.Revision++
		}
	}
	if s.Title != nil {
		if len(*s.Title) > maxTitle || strings.ContainsFunc(*s.Title, unicode.IsControl) ||
			*s.Title != "" && !sale.Visible(*s.Title) {
			bad.Add("title", fmt.Sprintf("must be one line of at most %d bytes, with a visible character", maxTitle))
		}
		e.Title = *s.Title
	}
	if s.Types != nil {
		for _, t := range *s.Types {
			if !slices.Contains(Types, t) {
				bad.Add("types", "must be "+strings.Join(Types[:len(Types)-1], ", ")+" or "+Types[len(Types)-1])
				break
			}
		}
		e.Types = slices.Compact(slices.Sorted(slices.Values(*s.Types)))
	}
	if s.Sales != nil {
		if len(*s.Sales) > maxSales {
			bad.Add("sales", fmt.Sprintf("must be at most %d", maxSales))
		}
		for _, id := range *s.Sales {
			if err := sale.ValidateID(id); err != nil {
				bad.Add("sales", err.Error())
				break
			}
		}
		e.Sales = slices.Compact(slices.Sorted(slices.Values(*s.Sales)))
	}
	return bad.Err()
}

// Add creates an endpoint. Only this result, and that of Rotate, has a secret. Errors: a *sale.InvalidError;
// a *store.RefusedError if there are too many.
func (d *Admin) Add(ctx context.Context, s Settings, strict bool) (Endpoint, error) {
	if s.URL == nil {
		s.URL = new(string)
	}
	e := Endpoint{ID: "ep_" + strings.ToLower(rand.Text()[:20]), Secret: NewSecret(), Strict: strict}
	if err := d.apply(&e, s); err != nil {
		return Endpoint{}, err
	}
	return d.AddEndpoint(ctx, e)
}

// List returns every endpoint, the oldest first, with counts of at most MaxCounted deliveries.
func (d *Admin) List(ctx context.Context) ([]Endpoint, error) {
	all, err := d.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := d.count(ctx, &all[i], MaxCounted); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Change changes settings. Deliveries that are already written stay unchanged. Errors: a *sale.InvalidError,
// ErrNoEndpoint.
func (d *Admin) Change(ctx context.Context, id string, s Settings) (Endpoint, error) {
	apply := func(e *Endpoint) error { return d.apply(e, s) }
	return d.ChangeEndpoint(ctx, id, "webhook.change", apply)
}

// Pause stores deliveries without sending them until Resume. Errors: ErrNoEndpoint; a *store.RefusedError for a
// disabled endpoint.
func (d *Admin) Pause(ctx context.Context, id string) (Endpoint, error) {
	return d.ChangeEndpoint(ctx, id, "webhook.pause", func(e *Endpoint) error {
		if e.State == EndpointDisabled {
			return errDisabled
		}
		e.State, e.Reason = EndpointPaused, store.Reason(ctx)
		return nil
	})
}

// Resume sends again, also to a disabled endpoint and to one that is held back because it failed. Error:
// ErrNoEndpoint.
func (d *Admin) Resume(ctx context.Context, id string) (Endpoint, error) {
	return d.ChangeEndpoint(ctx, id, "webhook.resume", func(e *Endpoint) error {
		e.State, e.Reason = EndpointActive, ""
		e.Revision++ // also if it is held
		return nil
	})
}

// Rotate gives an endpoint a new secret, and returns it; see Store.RotateSecret. Errors: ErrNoEndpoint, a
// *sale.InvalidError.
func (d *Admin) Rotate(ctx context.Context, id string, keep time.Duration) (secret string, err error) {
	if keep < 0 || keep > maxSecrets {
		return "", sale.Invalid("keep", "must be between 0s and "+duration.Text(maxSecrets))
	}
	secret = NewSecret()
	return secret, d.RotateSecret(ctx, id, secret, keep)
}

// Ping sends one test delivery immediately, also to a paused endpoint. The outcome is in the log of the returned
// delivery. Errors: ErrNoEndpoint; a *store.RefusedError for a disabled endpoint.
func (d *Admin) Ping(ctx context.Context, id string) (deliveryID string, err error) {
	e, err := d.uncounted(ctx, id)
	if err != nil {
		return "", err
	}
	if e.State == EndpointDisabled {
		return "", errDisabled
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	ping := NewDelivery{
		ID: ID(pingPrefix+strings.ToLower(rand.Text()[:12]), id), EndpointID: id, Sequence: SequenceUnordered, Type: TypePing,
		Body: encode(payload{TypePing, now, map[string]string{"endpoint_id": id}}),
	}
	_, err = d.AddDeliveries(ctx, []NewDelivery{ping})
	return ping.ID, err
}

// redeliverBatch bounds a transaction.
const redeliverBatch = 2000

// RedeliverSince sends again all deliveries that failed permanently since then, and returns their number. Errors are
// those of Redeliver; deliveries queued before an error stay queued.
func (d *Admin) RedeliverSince(ctx context.Context, endpointID string, since time.Time) (n int64, err error) {
	for {
		some, err := d.RedeliverFailed(ctx, endpointID, since, redeliverBatch)
		n += some
		if err != nil || some < redeliverBatch {
			return n, err
		}
	}
}
