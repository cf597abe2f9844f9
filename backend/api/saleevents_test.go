package api

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/events/salechange"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

// stream opens an event stream and returns its lines. It is closed with the test.
func (s *site) stream(path string) (lines *bufio.Scanner, disconnect func()) {
	s.T.Helper()
	resp, err := http.Get("http://" + s.Addr + path)
	if err != nil {
		s.T.Fatal(err)
	}
	disconnect = func() { resp.Body.Close() }
	s.T.Cleanup(disconnect)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("X-Accel-Buffering") != "no" {
		s.T.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	return bufio.NewScanner(resp.Body), disconnect
}

// listen opens the stream of a sale; next returns its next event as "name data", skipping everything else.
func (s *site) listen(saleID string) (next func() string, disconnect func()) {
	s.T.Helper()
	lines, disconnect := s.stream("/v1/sales/" + saleID + "/events")
	return func() string {
		name := ""
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = event
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return name + " " + data
			}
		}
		return "end"
	}, disconnect
}

func TestEventsReportChangesOfStateAndUnitsLeft(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	s.handlers.feeds.interval = 10 * time.Millisecond
	next, _ := s.listen("drop")
	for _, want := range []string{`state {"state":"open"}`, `left {"left":42,"stock":100}`} {
		if got := next(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	change := func(left, stock int64, state sale.State) {
		w.do(func() { v := w.sales["drop"]; v.Left, v.Stock, v.State = left, stock, state; w.sales["drop"] = v })
	}
	for _, stock := range []int64{100, 130} { // 130: a restock whose units are sold already
		change(41, stock, sale.StateOpen)
		changed := time.Now()
		if got, want := next(), fmt.Sprintf(`left {"left":41,"stock":%d}`, stock); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if took := time.Since(changed); took > httpserver.Heartbeat/2 {
			t.Errorf("reported %v after it changed", took)
		}
	}
	w.do(func() { w.redisErr = servertest.ErrRedisDown }) // no events while Redis is down
	change(0, 130, sale.StateSoldOut)
	w.do(func() { w.redisErr = nil })
	if got := next() + next(); got != `state {"state":"sold_out"}left {"left":0,"stock":130}` {
		t.Errorf("%s", got)
	}
}

func TestStreamsOfOneSaleShareReads(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	s.handlers.feeds.interval = 20 * time.Millisecond
	var closers []func()
	for range 50 {
		next, disconnect := s.listen("drop")
		next()
		closers = append(closers, disconnect)
	}
	start := time.Now()
	var before, reads int
	w.do(func() { before = w.views })
	testenv.Eventually(t, time.Minute, "five reads",
		func() bool { w.do(func() { reads = w.views - before }); return reads >= 5 })
	// At the start, one read may be due and another one in progress.
	if most := int(time.Since(start)/s.handlers.feeds.interval) + 2; reads > most {
		t.Errorf("%d reads, want %d at most", reads, most)
	}
	for _, disconnect := range closers {
		disconnect()
	}
}

func TestFeedEndsWithItsLastStream(t *testing.T) {
	w := newWorld()
	feeds := newSaleFeeds(w, &salechange.Hub{}, 2, t.Context())
	v := w.sales["drop"]
	a, ok1 := feeds.subscribe(v)
	b, ok2 := feeds.subscribe(v)
	_, ok3 := feeds.subscribe(v)
	if !ok1 || !ok2 || ok3 || a != b {
		t.Fatalf("%v %v %v, same feed: %v; want two streams of one feed", ok1, ok2, ok3, a == b)
	}
	feeds.unsubscribe(a)
	if a.ctx.Err() != nil {
		t.Fatal("the feed ended with an open stream")
	}
	feeds.unsubscribe(b)
	<-a.ctx.Done()
	if len(feeds.bySale) != 0 || feeds.streams != 0 {
		t.Errorf("%d feeds and %d streams are left", len(feeds.bySale), feeds.streams)
	}
}

func TestEventsOfUnknownSaleAndAtTheMaximumAreRefused(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	cfg.MaxStreams = 1
	s := serve(t, cfg)
	servertest.WantProblem(t, s.Do("GET", "/v1/sales/other/events", ""), 404, "not-found")
	s.listen("drop")
	full := s.Do("GET", "/v1/sales/drop/events", "")
	servertest.WantProblem(t, full, 503, "temporarily-unavailable")
	if full.Header.Get("Retry-After") != "30" || !strings.Contains(full.Body, "GET /v1/sales/{sale}") {
		t.Errorf("at the maximum: %v %s; want Retry-After 30", full.Header, full.Body)
	}
}

// The stream of a disconnected client ends before the next heartbeat if another client needs it.
func TestDisconnectFreesAStream(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	cfg.MaxStreams = 2
	s := serve(t, cfg)
	staying, _ := s.listen("drop")
	staying()
	next, disconnect := s.listen("drop")
	next()
	disconnect()
	begin := time.Now()
	testenv.Eventually(t, httpserver.Heartbeat/2, "a free stream", func() bool {
		resp, err := http.Get("http://" + s.Addr + "/v1/sales/drop/events")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	t.Logf("after %v", time.Since(begin))
	w.do(func() { v := w.sales["drop"]; v.Left = 7; w.sales["drop"] = v })
	for got := staying(); got != `left {"left":7,"stock":100}`; got = staying() {
		if got == "end" {
			t.Fatal("the stream of a connected client has ended")
		}
	}
}

// The first heartbeat after a disconnect ends a stream, although its write would succeed.
func TestHeartbeatEndsTheStreamOfADisconnectedClient(t *testing.T) {
	t.Parallel()
	s := serve(t, newWorld().config(t))
	next, disconnect := s.listen("drop")
	next()
	disconnect()
	testenv.Eventually(t, 2*httpserver.Heartbeat-time.Second, "the stream ends", func() bool {
		return testutil.ToFloat64(s.handlers.metrics.streams) == 0
	})
}
