package admission

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

func TestUserLimiterRejectsAboveTheRate(t *testing.T) {
	redisServer := testenv.StartRedis(t)
	shared := redisServer.Client()
	for name, client := range map[string]*redis.Client{"memory": nil, "redis": shared} {
		t.Run(name, func(t *testing.T) {
			u, err := NewUserLimiter("3-H", nil)
			if client != nil {
				u, err = NewUserLimiter("3-H", client)
			}
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
	if u, err := NewUserLimiter("", nil); err != nil || u.Allow(t.Context(), "ann").Limit != 10 {
		t.Errorf("the default is not ten a second: %v", err)
	}
	for _, bad := range []string{"x", "10", "10-Y", "-1-S", "0-S"} {
		if _, err := NewUserLimiter(bad, nil); err == nil {
			t.Errorf("NewUserLimiter(%q) succeeded", bad)
		}
	}
}

// While the shared Redis does not respond, each backend counts locally, and no request waits long.
func TestUserLimiterCountsLocallyWithoutRedis(t *testing.T) {
	server := testenv.StartRedis(t)
	client, err := redisconn.Open(server.URL, testenv.WithoutTimeouts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewUserLimiter("3-H", pipe)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	u.now = func() time.Time { return at }
	allow := func(buyer string) LimitResult { return u.Allow(t.Context(), buyer) }
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
func TestUserLimiterOpensTheSharedRedisOnce(t *testing.T) {
	u, err := NewUserLimiter("3-H", nil)
	if err != nil {
		t.Fatal(err)
	}
	opening, release := make(chan struct{}), make(chan struct{})
	u.open = func() (limiter.Store, error) {
		close(opening)
		<-release
		return nil, errors.New("unavailable")
	}
	first := make(chan LimitResult, 1)
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
