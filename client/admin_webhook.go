package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Endpoint is a receiver of webhooks.
type Endpoint struct {
	ID               string     `json:"id"`
	URL              string     `json:"url"`
	Title            string     `json:"title"`
	Types            []string   `json:"types"` // empty: all
	Sales            []string   `json:"sales"` // empty: all
	Strict           bool       `json:"strict"`
	State            string     `json:"state"` // active, paused or disabled
	Reason           string     `json:"reason"`
	CreatedAt        time.Time  `json:"created_at"`
	CreatedBy        string     `json:"created_by"`
	OldSecretUntil   *time.Time `json:"old_secret_until,omitempty"` // after a rotation
	FailingSince     *time.Time `json:"failing_since,omitempty"`
	HeldUntil        *time.Time `json:"held_until,omitempty"` // no delivery is sent before this time
	LastError        string     `json:"last_error,omitempty"` // of the last failed attempt, also after later successes
	LastErrorAt      *time.Time `json:"last_error_at,omitempty"`
	Waiting          int64      `json:"waiting"`            // waiting deliveries, of which at most 10,000 are counted
	Failed           int64      `json:"failed"`             // failed deliveries, of which at most 10,000 are counted
	OldestAgeSeconds float64    `json:"oldest_age_seconds"` // age of the oldest waiting delivery
	Secret           string     `json:"secret,omitempty"`   // set by CreateEndpoint only
}

// NewEndpoint describes an endpoint to create.
type NewEndpoint struct {
	URL    string   `json:"url"`
	Title  string   `json:"title,omitempty"`
	Types  []string `json:"types,omitempty"`  // order.created, order.paid, order.cancelled; empty: all
	Sales  []string `json:"sales,omitempty"`  // empty: all
	Strict bool     `json:"strict,omitempty"` // one delivery at a time, in the order of all events
}

// CreateEndpoint creates an endpoint. Only its result contains the secret. The request is not retried: after an error
// that wraps ErrNoResponse, check Endpoints before calling it again. The error matches Conflict if there are 100
// endpoints already.
func (a *Admin) CreateEndpoint(ctx context.Context, e NewEndpoint) (created Endpoint, err error) {
	err = a.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/webhooks", Body: e, NoRetry: true}, &created)
	return created, err
}

// Endpoints returns all endpoints, oldest first.
func (a *Admin) Endpoints(ctx context.Context) ([]Endpoint, error) {
	const path = "/admin/v1/webhooks"
	list, err := get[struct{ Webhooks []Endpoint }](ctx, &a.conn, path)
	return items(path, list.Webhooks, err)
}

// Ping schedules a test delivery to an endpoint and returns the id of the delivery. The request is not retried. The
// error matches Conflict if the endpoint is disabled.
func (a *Admin) Ping(ctx context.Context, endpoint string) (delivery string, err error) {
	var sent struct {
		Delivery string `json:"delivery"`
	}
	path := "/admin/v1/webhooks/" + url.PathEscape(endpoint) + "/ping"
	err = a.Do(ctx, Request{Method: http.MethodPost, Path: path, NoRetry: true}, &sent)
	return sent.Delivery, err
}

// DeleteEndpoint deletes an endpoint with all its deliveries. Repeated calls have no further effect.
func (a *Admin) DeleteEndpoint(ctx context.Context, endpoint, reason string) error {
	path := "/admin/v1/webhooks/" + url.PathEscape(endpoint) + "/remove"
	return a.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: reasonBody(reason)}, nil)
}
