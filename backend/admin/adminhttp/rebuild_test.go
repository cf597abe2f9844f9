package adminhttp

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

// fakeRebuild is a Rebuilder that waits until the test releases it.
type fakeRebuild struct {
	mu     sync.Mutex
	status rebuild.Status
	only   []string
	busy   bool
	finish chan struct{}
}

func (f *fakeRebuild) Run(_ context.Context, only ...string) error {
	f.mu.Lock()
	if f.busy {
		f.mu.Unlock()
		return guard.ErrBusy
	}
	f.only, f.busy = only, true
	f.status = rebuild.Status{Running: true, Fence: f.status.Fence + 1, Step: "count", Done: 3, Total: 10}
	f.mu.Unlock()
	<-f.finish
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy, f.status.Running = false, false
	f.status.Sales = []rebuild.Outcome{{SaleID: "shoe", Left: 4, Orders: 6, Balanced: true}}
	return nil
}

func (f *fakeRebuild) Status() rebuild.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// fakePace reports that the first shard drains in three seconds. The pace of the others is unknown.
type fakePace struct{}

func (fakePace) Within([]*queue.Stats) (time.Duration, bool) { return 3 * time.Second, true }

func (fakePace) Shard(i int, _ *queue.Stats) queue.Pace {
	if i > 0 {
		return queue.Pace{}
	}
	return queue.Pace{Known: true, PerSecond: 7, Drains: true, Within: 3 * time.Second}
}

// slowRebuild is a Rebuilder. Its first Run begins later than the following ones.
type slowRebuild struct {
	fakeRebuild
	runs             atomic.Int32
	entered, proceed chan struct{}
}

func (r *slowRebuild) Run(ctx context.Context, only ...string) error {
	if r.runs.Add(1) == 1 {
		close(r.entered)
		<-r.proceed
	}
	return r.fakeRebuild.Run(ctx, only...)
}

// The rebuild of another request does not count as the own one.
func TestOneOfConcurrentRebuildsIsStarted(t *testing.T) {
	r := &slowRebuild{
		fakeRebuild: fakeRebuild{finish: make(chan struct{})}, entered: make(chan struct{}), proceed: make(chan struct{}),
	}
	defer close(r.finish)
	cfg := newFakeService().config()
	cfg.Rebuilder = r
	s := serve(t, cfg)
	answer := make(chan servertest.Answer, 1)
	go func() { answer <- s.operate(http.MethodPost, "/admin/v1/rebuild", `{"sale":"shoe"}`) }()
	<-r.entered
	second := s.operate(http.MethodPost, "/admin/v1/rebuild", "")
	close(r.proceed)
	if first := <-answer; first.Status != http.StatusAccepted || second.Status != http.StatusConflict {
		t.Errorf("answers %d %s and %d %s", first.Status, first.Body, second.Status, second.Body)
	}
}

func TestRebuildIsStartedOnceAndShown(t *testing.T) {
	d := newFakeService()
	r := &fakeRebuild{finish: make(chan struct{})}
	cfg := d.config()
	cfg.Rebuilder = r
	s := serve(t, cfg)

	first := s.operate(http.MethodPost, "/admin/v1/rebuild", `{"sale":"shoe"}`)
	if first.Status != http.StatusAccepted || first.Field(t, "fence") != "1" || first.Field(t, "running") != "true" ||
		first.Field(t, "step") != "count" {
		t.Fatalf("started: %d %s", first.Status, first.Body)
	}
	if len(r.only) != 1 || r.only[0] != "shoe" {
		t.Errorf("it rebuilds %q", r.only)
	}
	if second := s.operate(http.MethodPost, "/admin/v1/rebuild", ""); second.Status != http.StatusConflict {
		t.Errorf("a concurrent second rebuild: %d %s", second.Status, second.Body)
	}
	close(r.finish)
	testenv.Eventually(t, time.Minute, "the end of the rebuild", func() bool {
		now := s.operate(http.MethodGet, "/admin/v1/rebuild", "")
		return now.Field(t, "running") == "false" && strings.Contains(now.Body, `"sale_id":"shoe","left":4`)
	})
	for _, body := range []string{`{"sale":"a b"}`, `{"sale":""}`} { // an empty id is not all sales
		servertest.WantProblem(t, s.operate(http.MethodPost, "/admin/v1/rebuild", body), 400, "bad-request")
	}
}
