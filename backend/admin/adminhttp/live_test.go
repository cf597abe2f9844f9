package adminhttp

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admin/livestats"
	"sluice/backend/admin/session"
	"sluice/backend/web/httpserver/servertest"
	"sluice/client"
	"sluice/test/testenv"
)

// fakeLiveStats returns the samples that the test adds.
type fakeLiveStats struct {
	mu      sync.Mutex
	samples []livestats.Sample
	more    chan struct{}
}

func newFakeLiveStats() *fakeLiveStats {
	return &fakeLiveStats{more: make(chan struct{}), samples: []livestats.Sample{
		{
			At: 1000, Counts: map[string]float64{"rule:ip:deny": 3},
			Latency: &livestats.Latency{P50: 1, P95: 2, P99: 3}, Totals: &livestats.Totals{Sales: 1, Log: 7},
			Queue: &livestats.QueueCounts{QueueCounts: client.QueueCounts{Ready: 5}, Unavailable: []int{2}},
		},
		{At: 2000, Counts: map[string]float64{}},
	}}
}

func (b *fakeLiveStats) add(s livestats.Sample) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, s)
	close(b.more)
	b.more = make(chan struct{})
}

func (b *fakeLiveStats) Since(at int64) (after []livestats.Sample, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	after = []livestats.Sample{}
	for _, s := range b.samples {
		if s.At > at {
			after = append(after, s)
		}
	}
	return after, b.more
}
func (b *fakeLiveStats) Started() time.Time { return servertest.OrderID(1).Time() }
func (b *fakeLiveStats) Sources() []livestats.Source {
	at := servertest.OrderID(1).Time()
	return []livestats.Source{
		{Name: livestats.Self, SeenAt: &at, Rules: []livestats.Rule{}},
		{
			Name: "http://10.0.0.9/metrics", Edge: true, Error: "no route",
			Rules: []livestats.Rule{{Name: "ip", Key: "ip", Rate: "20r/s", Burst: "40", Mode: "enforce", OnError: "deny"}},
		},
	}
}

// serveLive returns a server and its live stats. ended may be nil.
func serveLive(t *testing.T, ended session.Store) (*site, *fakeLiveStats) {
	cfg, stats := newFakeService().config(), newFakeLiveStats()
	cfg.LiveStats, cfg.EndedSessions = stats, ended
	return serve(t, cfg), stats
}

func TestLiveStatsArePolledAndStreamed(t *testing.T) {
	s, b := serveLive(t, nil)
	if a := s.operate("GET", "/admin/v1/live?since=1000", ""); a.Status != 200 || strings.Count(a.Body, `"at":`) != 1 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.operate("GET", "/admin/v1/live?since=x", ""); a.Status != 400 {
		t.Errorf("%d", a.Status)
	}
	if a := s.operate("GET", "/admin/v1/live", ""); !strings.Contains(a.Body, `"rule:ip:deny":3`) {
		t.Errorf("%s", a.Body)
	}
	next, _ := s.watch("/admin/v1/live/events?since=1000", "Authorization: Bearer "+adminToken)
	if e := next(); !strings.Contains(e, `"at":2000`) || strings.Contains(e, `"at":1000`) {
		t.Errorf("first %s", e)
	}
	b.add(livestats.Sample{At: 3000, Counts: map[string]float64{}})
	if e := next(); !strings.Contains(e, `"at":3000`) || strings.Contains(e, `"at":2000`) {
		t.Errorf("then %s", e)
	}
}

// watch opens the stream of live stats; next returns the data of its next event, or "end".
func (s *site) watch(path string, headers ...string) (next func() string, closeStream func()) {
	s.T.Helper()
	req, err := http.NewRequest("GET", "http://"+s.Addr+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.T.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	s.T.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := servertest.Contract(s.T).Valid("Live", []byte(data)); err != nil {
					s.T.Errorf("%s: %v", data, err)
				}
				return data
			}
		}
		return "end"
	}, func() { _ = resp.Body.Close() }
}

func TestLiveStreamsAreBounded(t *testing.T) {
	s, b := serveLive(t, nil)
	var closers []func()
	for range maxLiveStreams {
		next, closeStream := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
		next()
		closers = append(closers, closeStream)
	}
	if a := s.operate("GET", "/admin/v1/live/events", ""); a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d", a.Status)
	}
	for _, closeStream := range closers {
		closeStream()
	}
	at := int64(10_000)
	testenv.Eventually(t, time.Minute, "a stream is free", func() bool { // a write detects a disconnected client
		at++
		b.add(livestats.Sample{At: at, Counts: map[string]float64{}})
		return s.operate("HEAD", "/admin/v1/live/events", "").Status == 200
	})
	next, _ := s.watch("/admin/v1/live/events", "Authorization: Bearer "+adminToken)
	next()
}
