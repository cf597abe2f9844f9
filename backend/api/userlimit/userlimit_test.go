package userlimit

import (
	"errors"
	"testing"
	"time"

	"github.com/ulule/limiter/v3"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

func TestLimiterRejectsAboveTheRate(t *testing.T) {
	pipe, err := redisconn.NewPipeline(testenv.StartRedis(t).Client())
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*redisconn.Pipeline{"memory": nil, "redis": pipe} {
		t.Run(name, func(t *testing.T) {
			u, err := New("3-H", client)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				if got := u.Allow(t.Context(), "ann"); got.Allowed != (i < 3) || got.Limit != 3 {
					t.Fatalf("request %d: %+v", i+1, got)
				}
			}
			if got := u.Allow(t.Context(), "bob"); !got.Allowed {
				t.Fatal("the limit of ann applies to bob")
			}
		})
	}
	if u, err := New("", nil); err != nil || u.Allow(t.Context(), "ann").Limit != 10 {
		t.Errorf("the default is not ten a second: %v", err)
	}
	for _, bad := range []string{"x", "10", "10-Y", "-1-S", "0-S"} {
		if _, err := New(bad, nil); err == nil {
			t.Errorf("New(%q) succeeded", bad)
		}
	}
}

const tooLong = 20 * time.Second

// While the shared Redis does not respond, each backend counts locally, and no request waits long.
func TestLimiterCountsLocallyWithoutRedis(t *testing.T) {
	server := testenv.StartRedis(t)
	client := testenv.OpenPatient(t, server.URL)
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		t.Fatal(err)
	}
	u, err := New("3-H", pipe)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	u.now = func() time.Time { return at }
	allow := func(buyer string) Result { return u.Allow(t.Context(), buyer) }
	if got := allow("ann"); !got.Allowed || got.Local || got.Remaining != 2 {
		t.Errorf("with Redis: %+v", got)
	}
	server.Pause()
	began := time.Now()
	for i := range 5 {
		if got := allow("ann"); !got.Local || got.Allowed != (i < 3) {
			t.Errorf("request %d without Redis: %+v", i+1, got)
		}
		if u.sharedLimiter() != nil {
			t.Errorf("after request %d timed out, the next one uses Redis again", i+1)
		}
	}
	if took := time.Since(began); took > tooLong {
		t.Errorf("requests waited %v for a Redis that does not respond", took)
	}
	server.Resume()
	if got := allow("bob"); !got.Local {
		t.Errorf("the next request used Redis immediately: %+v", got)
	}
	testenv.Eventually(t, time.Minute, "the shared Redis counts again", func() bool {
		at = at.Add(sharedRetry)
		return !allow("cid").Local
	})
}

// One request opens the shared Redis, and others do not wait for it.
func TestLimiterOpensTheSharedRedisOnce(t *testing.T) {
	u, err := New("3-H", nil)
	if err != nil {
		t.Fatal(err)
	}
	opening, release := make(chan struct{}), make(chan struct{})
	u.open = func() (limiter.Store, error) {
		close(opening)
		<-release
		return nil, errors.New("unavailable")
	}
	first := make(chan Result, 1)
	go func() { first <- u.Allow(t.Context(), "ann") }()
	<-opening
	if got := u.Allow(t.Context(), "bob"); !got.Allowed || !got.Local {
		t.Errorf("during the open: %+v", got)
	}
	close(release)
	if got := <-first; !got.Allowed || !got.Local {
		t.Errorf("the opening request: %+v", got)
	}
}
