package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Endpoint is where webhooks are posted to.
type Endpoint struct {
	ID        string    `json:"id"`
	URL       string    `json:"url"`
	Title     string    `json:"title"`
	Types     []string  `json:"types"` // empty: all
	Sales     []string  `json:"sales"` // empty: all
	Strict    bool      `json:"strict"`
	State     string    `json:"state"` // active, paused or disabled
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
	Waiting   int64     `json:"waiting"`
	Failed    int64     `json:"failed"` // deliveries that were given up
	Secret    string    `json:"secret"` // of one that was just made, and of no other
}

// NewEndpoint is an endpoint to be made.
type NewEndpoint struct {
	URL    string   `json:"url"`
	Title  string   `json:"title,omitempty"`
	Types  []string `json:"types,omitempty"`  // order.created, order.paid, order.cancelled; empty: all
	Sales  []string `json:"sales,omitempty"`  // empty: all
	Strict bool     `json:"strict,omitempty"` // one delivery at a time, in the order of all events
}

// AddEndpoint makes an endpoint; its secret is in the answer, and nowhere else. It is asked for once: where no answer comes, look at Endpoints before asking again.
func (o *Operator) AddEndpoint(ctx context.Context, e NewEndpoint) (made Endpoint, err error) {
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/webhooks", Body: e, Once: true}, &made)
	return made, err
}

// Endpoints are all of them, the oldest first.
func (o *Operator) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var answer struct {
		Webhooks []Endpoint `json:"webhooks"`
	}
	err := o.Do(ctx, Request{Method: http.MethodGet, Path: "/admin/v1/webhooks"}, &answer)
	return answer.Webhooks, err
}

// Ping sends something to try an endpoint, soon and once; delivery names it in the endpoint's log.
func (o *Operator) Ping(ctx context.Context, endpoint string) (delivery string, err error) {
	var answer struct {
		Delivery string `json:"delivery"`
	}
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/webhooks/" + url.PathEscape(endpoint) + "/ping", Once: true}, &answer)
	return answer.Delivery, err
}

// RemoveEndpoint forgets an endpoint, with all that was and was not delivered.
func (o *Operator) RemoveEndpoint(ctx context.Context, endpoint, reason string) error {
	return o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/webhooks/" + url.PathEscape(endpoint) + "/remove", Body: because(reason)}, nil)
}
