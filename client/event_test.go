package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

func events(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, text)
	}
}

// A stream that breaks goes on where it was, after the pause that the server has asked for; a refusal ends it.
func TestStreamGoesOnAfterABreak(t *testing.T) {
	s := newShop(t,
		events("retry: 4000\n\nid: 1.created\nevent: order\ndata: {\"order_id\":\"1\",\ndata: \"status\":\"created\"}\n\n: still here\n\nid: 2.created\nevent: order\ndata: {\"order_id\":\"2\""),
		refuse(503, Unavailable, "2"),
		events("id: 2.paid\r\nevent: order\r\ndata: {\"order_id\":\"2\",\"status\":\"paid\"}\r\n\r\nevent: other\ndata: x\n\n"),
		refuse(401, Unauthorized, ""),
	)
	var told []string
	var last error
	for o, err := range s.client(t).MyOrders(t.Context()) {
		if last = err; err == nil {
			told = append(told, o.OrderID+" "+string(o.Status))
		}
	}
	if !slices.Equal(told, []string{"1 created", "2 paid"}) || !errors.Is(last, Unauthorized) {
		t.Errorf("told of %q, and then %v", told, last)
	}
	asked := s.requests()
	if len(asked) != 4 || asked[0].Header.Get("Last-Event-ID") != "" || asked[1].Header.Get("Last-Event-ID") != "1.created" || asked[3].Header.Get("Last-Event-ID") != "2.paid" {
		t.Errorf("%d requests", len(asked))
	}
	if len(s.waits) != 3 || s.waits[0] < 4*time.Second || s.waits[1] < 2*time.Second || s.waits[1] > 3*time.Second {
		t.Errorf("waits %v", s.waits)
	}
}

// A connection that says nothing is given up for a new one.
func TestSilentStreamIsOpenedAnew(t *testing.T) {
	s := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		events("event: left\ndata: {\"left\":5}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, events("event: state\ndata: {\"state\":\"open\"}\n\n"))
	c := s.client(t)
	c.silent = 500 * time.Millisecond // no slow machine is silent for so long before the first event
	var left int64
	for e, err := range c.SaleEvents(t.Context(), "drop") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Left != nil {
			left = *e.Left
		}
		if e.State == Open {
			break
		}
	}
	if left != 5 || len(s.requests()) != 2 {
		t.Errorf("left %d after %d requests", left, len(s.requests()))
	}
}

// The context ends a stream that waits, with its error; and one that never comes to be is given up.
func TestStreamEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	s := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		events("event: left\ndata: {\"left\":5}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var last error
	for _, err := range s.client(t).SaleEvents(ctx, "drop") {
		end()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
	s = newShop(t, hangUp)
	for _, err := range s.client(t).SaleEvents(t.Context(), "drop") {
		last = err
	}
	if !errors.Is(last, ErrNoAnswer) || len(s.requests()) < 8 {
		t.Errorf("it ended with %v after %d requests", last, len(s.requests()))
	}
	s = newShop(t, events("event: left\ndata: {\n\n"))
	for _, err := range s.client(t).SaleEvents(t.Context(), "drop") {
		last = err
	}
	if last == nil || errors.Is(last, ErrNoAnswer) {
		t.Errorf("bad data: %v", last)
	}
}
