package api

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/events/salechange"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// notified returns a site with a hub of sale notifications. It polls once an hour.
func notified(t *testing.T, w *world) (*site, *salechange.Hub) {
	hub := &salechange.Hub{}
	cfg := w.config(t)
	cfg.SaleChanges = hub
	s := serve(t, cfg)
	s.handlers.feeds.interval = time.Hour
	return s, hub
}

func (w *world) set(left int64, state sale.State) {
	w.do(func() { v := w.sales["drop"]; v.Left, v.State = left, state; w.sales["drop"] = v })
}

func TestStreamsReportAChangeAfterItsNotification(t *testing.T) {
	w := newWorld()
	s, hub := notified(t, w)
	next, disconnect := s.listen("drop")
	next()
	next()
	for i, c := range []struct {
		kind  salechange.Type
		left  int64
		state sale.State
		want  string
	}{
		{salechange.Left, 41, sale.StateOpen, `left {"left":41,"stock":100}`},
		{salechange.SoldOut, 0, sale.StateSoldOut, `state {"state":"sold_out"}left {"left":0,"stock":100}`},
		{salechange.Restocked, 5, sale.StateOpen, `state {"state":"open"}left {"left":5,"stock":100}`},
	} {
		w.set(c.left, c.state)
		hub.Publish(salechange.Notification{Type: c.kind, SaleID: "other"})
		hub.Publish(salechange.Notification{Type: c.kind, SaleID: "drop", Left: 999}) // its values are not used
		got := next()
		if i > 0 {
			got += next()
		}
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	disconnect()
}

func TestReadsAfterNotificationsAreBounded(t *testing.T) {
	w := newWorld()
	s, hub := notified(t, w)
	next, _ := s.listen("drop")
	next()
	next()
	var before, after int
	start := time.Now()
	w.do(func() { before, after = w.views, w.views })
	for time.Since(start) < 4*feedGap || after == before && time.Since(start) < time.Minute { // the first read may be late
		hub.Publish(salechange.Notification{Type: salechange.Left, SaleID: "drop"})
		w.do(func() { after = w.views })
	}
	if reads, most := after-before, int(time.Since(start)/feedGap)+2; reads == 0 || reads > most {
		t.Errorf("%d reads, want 1 to %d", reads, most)
	}
}

// behind is a stock with a slow clock: only the fifth read finds the sale open.
type behind struct {
	*world
	reads atomic.Int64
}

func (b *behind) View(ctx context.Context, id string) (admission.View, error) {
	v, err := b.world.View(ctx, id)
	if b.reads.Add(1) < 5 {
		v.State, v.OpensAt = sale.StateScheduled, time.Now().Add(30*time.Millisecond)
	}
	return v, err
}

func TestStreamsReportAnOpeningWithoutANotification(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	cfg.SaleChanges, cfg.Stock = &salechange.Hub{}, &behind{world: w}
	s := serve(t, cfg)
	s.handlers.feeds.interval = time.Hour
	next, _ := s.listen("drop")
	if got := next(); got != `state {"state":"scheduled"}` {
		t.Fatal(got)
	}
	next()
	if got := next(); got != `state {"state":"open"}` {
		t.Error(got)
	}
}

// edge opens the stream of an edge. next returns the next line of it that is not empty.
func (s *site) edge() (next func() string, disconnect func()) {
	s.T.Helper()
	lines, disconnect := s.stream("/.sluice/signals")
	return func() string {
		for lines.Scan() {
			if lines.Text() != "" {
				return lines.Text()
			}
		}
		return "end"
	}, disconnect
}

func TestEdgesGetTheIDOfAChangedSale(t *testing.T) {
	w := newWorld()
	s, hub := notified(t, w)
	next, disconnect := s.edge()
	if got := next(); got != ":" {
		t.Fatalf("the stream begins with %q, want a heartbeat", got)
	}
	hub.Publish(salechange.Notification{Type: salechange.Left, SaleID: "drop", Left: 3})
	hub.Publish(salechange.Notification{Type: salechange.Restocked, SaleID: "drop", Left: 3})
	if got := next() + " " + next(); got != `event: restocked data: {"v":1,"sale":"drop"}` {
		t.Error(got)
	}
	disconnect()
	testenv.Eventually(t, time.Minute, "the stream of a disconnected edge ends", func() bool {
		hub.Publish(salechange.Notification{Type: salechange.Paused, SaleID: "drop"})
		return s.handlers.edges.Load() == 0
	})
	next, _ = s.edge()
	next()
	s.Server.BeginDrain()
	if got := next(); got != "end" && !strings.HasPrefix(got, ":") {
		t.Errorf("after the drain has begun, an edge receives %q", got)
	}
}

func TestEdgesThatListenAreBounded(t *testing.T) {
	w := newWorld()
	s, _ := notified(t, w)
	for range maxEdgeStreams {
		next, _ := s.edge()
		next()
	}
	resp, err := http.Get("http://" + s.Addr + "/.sluice/signals")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("one more edge: %d", resp.StatusCode)
	}
}

// HEAD, and a stream that is rejected because the server drains, occupy nothing.
func TestRequestsWithoutAStreamReleaseTheirSlot(t *testing.T) {
	s, _ := notified(t, newWorld())
	for range maxEdgeStreams + 1 {
		if a := s.Do("HEAD", "/.sluice/signals", ""); a.Status != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("HEAD: %d %v", a.Status, a.Header)
		}
	}
	s.Server.BeginDrain()
	for _, path := range []string{"/.sluice/signals", "/v1/sales/drop/events"} {
		if a := s.Do("GET", path, ""); a.Status != 503 {
			t.Errorf("GET %s during the drain: %d", path, a.Status)
		}
	}
	feeds := s.handlers.feeds
	feeds.mu.Lock()
	defer feeds.mu.Unlock()
	if edges := s.handlers.edges.Load(); edges != 0 || feeds.streams != 0 || len(feeds.bySale) != 0 {
		t.Errorf("%d edges and %d streams of %d sales are left", edges, feeds.streams, len(feeds.bySale))
	}
}
