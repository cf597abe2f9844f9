package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// SaleEvent is what has changed about a sale: one of the two fields is set.
type SaleEvent struct {
	State State  // "" unless the state has changed
	Left  *int64 // units nobody holds; nil unless that has changed
}

// SaleEvents tells how a sale is, and then each change, within a second at the latest. It goes on after a broken connection, and then begins anew with how the sale
// is. It ends with the context, whose error it gives last, and with a refusal such as NotFound.
func (c *Client) SaleEvents(ctx context.Context, saleID string) iter.Seq2[SaleEvent, error] {
	return func(yield func(SaleEvent, error) bool) {
		err := c.stream(ctx, "/v1/sales/"+url.PathEscape(saleID)+"/events", func(e sseEvent) (bool, error) {
			var data struct {
				State State  `json:"state"`
				Left  *int64 `json:"left"`
			}
			if e.name != "state" && e.name != "left" {
				return true, nil
			}
			if err := json.Unmarshal([]byte(e.data), &data); err != nil {
				return false, fmt.Errorf("client: the event %s is not sluice's: %w", e.name, err)
			}
			return yield(SaleEvent(data), nil), nil
		})
		if err != nil {
			yield(SaleEvent{}, err)
		}
	}
}

// MyOrders tells how the buyer's newest orders are (50 at most, those that are Queued or Dead left out), and then each change of any of them as it happens. After a
// broken connection it goes on where it was, and may tell of something twice. It ends with the context, whose error it gives last, and with a refusal such as
// Unauthorized.
func (c *Client) MyOrders(ctx context.Context) iter.Seq2[Order, error] {
	return c.orders(ctx, "/v1/me/events")
}

// OrderEvents is MyOrders for one order alone, also while it is Queued, and when it is Dead.
func (c *Client) OrderEvents(ctx context.Context, id string) iter.Seq2[Order, error] {
	return c.orders(ctx, "/v1/orders/"+url.PathEscape(id)+"/events")
}

func (c *Client) orders(ctx context.Context, path string) iter.Seq2[Order, error] {
	return func(yield func(Order, error) bool) {
		err := c.stream(ctx, path, func(e sseEvent) (bool, error) {
			if e.name != "order" {
				return true, nil
			}
			var o Order
			if err := json.Unmarshal([]byte(e.data), &o); err != nil {
				return false, fmt.Errorf("client: the event %s is not sluice's: %w", e.id, err)
			}
			return yield(o, nil), nil
		})
		if err != nil {
			yield(Order{}, err)
		}
	}
}

// errStopped says that whoever read a stream has had enough.
var errStopped = errors.New("stopped")

// stream reads events until take wants no more (nil), the context ends, or the server refuses for good.
func (c *conn) stream(ctx context.Context, path string, take func(sseEvent) (more bool, err error)) error {
	last, failures := "", 0
	for {
		pause, heard, err := c.streamOnce(ctx, path, &last, take)
		if heard {
			failures = 0
		}
		failures++
		wait, again := c.again(err, failures)
		switch {
		case errors.Is(err, errStopped):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !again || failures > c.retry.Attempts:
			return err
		}
		if pause > 0 { // as the server has asked for
			wait = pause + time.Duration(c.jitter()*float64(pause)/4)
		}
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// streamOnce reads one connection to its end; pause is how long the server wants to be left alone then, and heard says that it has said something.
func (c *conn) streamOnce(ctx context.Context, path string, last *string, take func(sseEvent) (bool, error)) (pause time.Duration, heard bool, err error) {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	// A connection that says nothing is dead, whatever TCP believes: the server sends a comment every 15 s.
	quiet := time.AfterFunc(c.silent, hangUp)
	defer quiet.Stop()
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
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // half a refusal is one too
		return 0, false, problemOf(resp, body)
	}
	lines := bufio.NewScanner(resp.Body)
	var e sseEvent
	for lines.Scan() {
		quiet.Reset(c.silent)
		heard = true
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "" && e.data != "":
			more, err := take(e)
			if err != nil {
				return pause, heard, err
			}
			if !more {
				return pause, heard, errStopped
			}
			if e.id != "" {
				*last = e.id
			}
			e = sseEvent{}
		case lines.Text() == "":
			e = sseEvent{}
		case name == "event":
			e.name = value
		case name == "data" && e.data != "":
			e.data += "\n" + value
		case name == "data":
			e.data = value
		case name == "id":
			e.id = value
		case name == "retry":
			if ms, err := strconv.ParseUint(value, 10, 20); err == nil {
				pause = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return pause, heard, fmt.Errorf("client: GET %s: %w: the stream has ended", path, ErrNoAnswer)
}

type sseEvent struct{ name, id, data string }
