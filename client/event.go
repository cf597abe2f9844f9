package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// SaleEvent is a change of a sale: of its State, or of Left and Stock.
type SaleEvent struct {
	State State  `json:"state"` // "" unless the state has changed
	Left  *int64 `json:"left"`  // units in stock; nil unless this number or Stock has changed
	Stock int64  `json:"stock"` // including sold units; 0 if Left is nil, or from a backend that does not send it
}

// SaleEvents returns the current state of a sale, then its changes, each with a delay of at most a second. It
// reconnects after a broken connection, and then returns the current state again. The sequence ends with the error
// of the context, or with a Problem such as NotFound.
func (c *Client) SaleEvents(ctx context.Context, saleID string) iter.Seq2[SaleEvent, error] {
	return decoded[SaleEvent](ctx, c, "/v1/sales/"+url.PathEscape(saleID)+"/events", "state", "left")
}

// MyOrders returns the newest orders of the buyer (at most 50; Queued and Dead orders are omitted), then every
// change of an order. It reconnects after a broken connection, continues after the last event, and may return an
// event twice. The sequence ends with the error of the context, or with a Problem such as Unauthorized. PayBy and
// Expired of the orders are not set; Order returns them.
func (c *Client) MyOrders(ctx context.Context) iter.Seq2[Order, error] {
	return decoded[Order](ctx, c, "/v1/me/events", "order")
}

// OrderEvents is like MyOrders for one order, and includes the statuses Queued and Dead.
func (c *Client) OrderEvents(ctx context.Context, id string) iter.Seq2[Order, error] {
	return decoded[Order](ctx, c, "/v1/orders/"+url.PathEscape(id)+"/events", "order")
}

// decoded returns the data of the events with one of the names, and the error that ends the stream.
func decoded[T any](ctx context.Context, c *Client, path string, names ...string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := c.stream(ctx, path, func(e sseEvent) (bool, error) {
			if !slices.Contains(names, e.name) {
				return true, nil
			}
			var data T
			if err := json.Unmarshal([]byte(e.data), &data); err != nil {
				return false, fmt.Errorf("client: decode the event %s: %w", cmp.Or(e.id, e.name), err)
			}
			return yield(data, nil), nil
		})
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

var errStopped = errors.New("stopped")

// stream reads events, and reconnects, until take returns false (the error is then nil) or an error, the context ends,
// or the server returns an error that a retry does not change.
func (c *conn) stream(ctx context.Context, path string, take func(sseEvent) (more bool, err error)) error {
	last, failures := "", 0
	for {
		pause, received, err := c.streamOnce(ctx, path, &last, take)
		if received {
			failures = 0
		}
		failures++
		wait, retry := c.retryDelay(err, failures)
		switch {
		case errors.Is(err, errStopped):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !retry || failures >= c.retry.Attempts:
			return err
		}
		if pause > 0 { // the server sent a delay
			wait = pause + time.Duration(c.jitter()*float64(pause)/4)
		}
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// streamOnce reads one connection to its end and stores the id of the last event in last. It returns the delay that the
// server requested before a reconnect, and whether any data was received.
func (c *conn) streamOnce(
	ctx context.Context, path string, last *string, take func(sseEvent) (bool, error),
) (pause time.Duration, received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The server sends a comment every 15 s, so a silent connection is broken.
	silence := time.AfterFunc(c.silent, cancel)
	defer silence.Stop()
	r := Request{Method: http.MethodGet, Path: path, header: http.Header{"Accept": {"text/event-stream"}}}
	if *last != "" {
		r.header.Set("Last-Event-ID", *last)
	}
	resp, err := c.open(ctx, r, nil)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status suffices if the body is incomplete
		return 0, false, problemOf(resp, body)
	}
	events := sseReader{lines: bufio.NewScanner(resp.Body), received: func() {
		received = true
		silence.Reset(c.silent)
	}}
	for {
		e, err := events.next()
		if err != nil {
			return events.pause, received, fmt.Errorf("client: GET %s: %w", path, err)
		}
		silence.Stop() // take may need longer
		more, err := take(e)
		silence.Reset(c.silent)
		if err != nil {
			return events.pause, received, err
		}
		if !more {
			return events.pause, received, errStopped
		}
		if e.id != "" {
			*last = e.id
		}
	}
}
