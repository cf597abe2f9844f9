package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func events(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, text)
	}
}

func TestMyOrdersResumesAfterLastEvent(t *testing.T) {
	s := newServer(t,
		events("retry: 4000\n\nid: 1.created\nevent: order\ndata: {\"order_id\":\"1\",\ndata: \"status\":\"created\"}\n\n"+
			": still here\n\nid: 2.created\nevent: order\ndata: {\"order_id\":\"2\""),
		problem(503, Unavailable, "2"),
		events("id: 2.paid\r\nevent: order\r\ndata: {\"order_id\":\"2\",\"status\":\"paid\"}\r\n\r\n"+
			"event: other\ndata: x\n\n"),
		problem(401, Unauthorized, ""),
	)
	var got []string
	var last error
	for o, err := range s.client(t).MyOrders(t.Context()) {
		if last = err; err == nil {
			got = append(got, o.OrderID+" "+string(o.Status))
		}
	}
	if !slices.Equal(got, []string{"1 created", "2 paid"}) || !errors.Is(last, Unauthorized) {
		t.Errorf("got events %q and error %v, want 1 created, 2 paid and %v", got, last, Unauthorized)
	}
	var ids []string
	for _, r := range s.requests() {
		ids = append(ids, r.Header.Get("Last-Event-ID"))
	}
	if want := []string{"", "1.created", "1.created", "2.paid"}; !slices.Equal(ids, want) {
		t.Errorf("got requests with Last-Event-ID %q, want %q", ids, want)
	}
	if len(s.waits) != 3 || s.waits[0] < 4*time.Second || s.waits[1] < 2*time.Second || s.waits[1] > 3*time.Second {
		t.Errorf("got delays %v, want three, of retry and Retry-After", s.waits)
	}
}

func TestSaleEventsReconnectsSilentStream(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		events("event: left\ndata: {\"left\":5}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, events("event: state\ndata: {\"state\":\"open\"}\n\n"))
	c := s.client(t)
	c.silent = 500 * time.Millisecond // longer than a slow machine needs for the first event
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
		t.Errorf("got left %d after %d requests, want 5 after 2", left, len(s.requests()))
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The program handles an event for longer than a stream may be silent.
func TestSaleEventsKeepsConnectionOfSlowLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		connect := func(r *http.Request) (*http.Response, error) {
			connections++
			body, server := io.Pipe()
			context.AfterFunc(r.Context(), func() { _ = server.CloseWithError(r.Context().Err()) })
			go func() {
				for left := 2; left >= 0; left-- {
					fmt.Fprintf(server, "event: left\ndata: {\"left\":%d}\n\n", left)
				}
			}()
			return &http.Response{StatusCode: 200, Body: body}, nil
		}
		c, err := New("http://shop.example", WithHTTPClient(&http.Client{Transport: transport(connect)}))
		if err != nil {
			t.Fatal(err)
		}
		var left []int64
		for e, err := range c.SaleEvents(t.Context(), "drop") {
			if err != nil {
				t.Fatal(err)
			}
			if left = append(left, *e.Left); len(left) == 3 {
				break
			}
			<-time.After(2 * c.silent)
		}
		if !slices.Equal(left, []int64{2, 1, 0}) || connections != 1 {
			t.Errorf("got %v over %d connections, want 2, 1, 0 over one", left, connections)
		}
	})
}

func TestSaleEventsEndsWithErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		events("event: left\ndata: {\"left\":5}\n\n")(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	var last error
	for _, err := range s.client(t).SaleEvents(ctx, "drop") {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("got error %v, want %v", last, context.Canceled)
	}
	s = newServer(t, closeConnection)
	for _, err := range s.client(t).SaleEvents(t.Context(), "drop") {
		last = err
	}
	if !errors.Is(last, ErrNoResponse) || len(s.requests()) != 8 {
		t.Errorf("got error %v after %d requests, want %v after all attempts", last, len(s.requests()), ErrNoResponse)
	}
	s = newServer(t, events("event: left\ndata: {\n\n"))
	for _, err := range s.client(t).SaleEvents(t.Context(), "drop") {
		last = err
	}
	if last == nil || errors.Is(last, ErrNoResponse) {
		t.Errorf("got error %v for invalid data, want a decoding error", last)
	}
}

func TestSaleEventsRejectsHugeEvents(t *testing.T) {
	for name, event := range map[string]string{
		"line": "data: " + strings.Repeat("x", maxEvent), "lines": strings.Repeat("data: x\n", maxEvent),
	} {
		s := newServer(t, events(event+"\n\n"), problem(404, NotFound, ""))
		var last error
		for _, err := range s.client(t).SaleEvents(t.Context(), "drop") {
			last = err
		}
		if last == nil || errors.Is(last, ErrNoResponse) || len(s.requests()) != 1 {
			t.Errorf("%s: got error %v after %d requests, want one about the size after 1", name, last, len(s.requests()))
		}
	}
}
