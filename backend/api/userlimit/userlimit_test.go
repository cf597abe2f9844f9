package userlimit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

func TestLimiterRejectsAboveTheRate(t *testing.T) {
	pipe, err := redisconn.NewPipeline(testenv.OpenPatient(t, testenv.StartRedis(t).URL))
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*redisconn.Pipeline{"memory": nil, "redis": pipe} {
		t.Run(name, func(t *testing.T) {
			u, err := New("3-H", client)
			if err != nil {
				t.Fatal(err)
			}
			u.timeout = time.Minute
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
	for _, bad := range []string{"x", "10", "10-Y", "10-", "10-S-S", "-1-S", "0-S"} {
		if _, err := New(bad, nil); err == nil {
			t.Errorf("New(%q) succeeded", bad)
		}
	}
}

// All buyers of a process count in the same window. After its end they count from 0, and the counts of buyers that do
// not return are not kept.
func TestLocalWindowEndsForAllBuyers(t *testing.T) {
	u, err := New("2-s", nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	u.now = func() time.Time { return start }
	for i := range 3 {
		got := u.Allow(t.Context(), "ann")
		want := Result{
			Allowed: i < 2, Limit: 2, Remaining: max(0, int64(1-i)), Period: time.Second, Reset: start.Add(time.Second),
		}
		if got != want {
			t.Errorf("request %d: %+v, want %+v", i+1, got, want)
		}
	}
	u.now = func() time.Time { return start.Add(time.Second - 1) }
	if got := u.Allow(t.Context(), "ann"); got.Allowed {
		t.Errorf("just before the end of the window: %+v", got)
	}
	if got := u.Allow(t.Context(), "bob"); !got.Allowed || got.Reset != start.Add(time.Second) {
		t.Errorf("the first request of bob: %+v", got)
	}
	u.now = func() time.Time { return start.Add(time.Second) }
	if got := u.Allow(t.Context(), "ann"); !got.Allowed || got.Reset != start.Add(2*time.Second) {
		t.Errorf("at the end of the window: %+v", got)
	}
	if n := len(u.local.counts); n != 1 {
		t.Errorf("%d counts in a window with one buyer", n)
	}
}

// Concurrent requests of one buyer are allowed exactly as often as the limit states.
func TestLocalCountIsExact(t *testing.T) {
	u, err := New("100-D", nil)
	if err != nil {
		t.Fatal(err)
	}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if u.Allow(t.Context(), "ann").Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := allowed.Load(); n != 100 {
		t.Errorf("%d of 400 requests allowed, want 100", n)
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
	u.timeout = time.Minute
	if got := allow("ann"); !got.Allowed || got.Local || got.Remaining != 2 {
		t.Errorf("with Redis: %+v", got)
	}
	u.timeout = sharedTimeout
	server.Pause()
	began := time.Now()
	for i := range 5 {
		if got := allow("ann"); !got.Local || got.Allowed != (i < 3) {
			t.Errorf("request %d without Redis: %+v", i+1, got)
		}
		if !u.suspended() {
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

// A Redis that is down when the backend starts does not prevent the start, and counts when it is available.
func TestLimiterStartsWithoutItsRedis(t *testing.T) {
	server := testenv.StartRedis(t)
	server.Kill()
	pipe, err := redisconn.NewPipeline(testenv.OpenPatient(t, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	u, err := New("3-H", pipe)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	u.now = func() time.Time { return at }
	if got := u.Allow(t.Context(), "ann"); !got.Allowed || !got.Local {
		t.Errorf("while Redis is down: %+v", got)
	}
	server.Start()
	testenv.Eventually(t, time.Minute, "Redis counts", func() bool {
		at = at.Add(sharedRetry)
		return !u.Allow(t.Context(), "bob").Local
	})
}

// Backends of different versions count a buyer's requests together: the key has the name that earlier versions used,
// and expires with the window. A key without an expiry, which no version writes, gets one.
func TestCountIsAKeyThatExpires(t *testing.T) {
	client := testenv.OpenPatient(t, testenv.StartRedis(t).URL)
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		t.Fatal(err)
	}
	u, err := New("3-H", pipe)
	if err != nil {
		t.Fatal(err)
	}
	u.timeout = time.Minute
	for _, prepare := range []func() error{
		func() error { return nil },
		func() error { return client.Set(t.Context(), "sluice:limit:user:ann", 0, 0).Err() },
	} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		got := u.Allow(t.Context(), "ann")
		count, err := client.Get(t.Context(), "sluice:limit:user:ann").Int()
		left := client.PTTL(t.Context(), "sluice:limit:user:ann").Val()
		if err != nil || got.Local || count != 1 || left <= 0 || left > time.Hour {
			t.Errorf("%+v: the key has %d, %v, and expires in %v", got, count, err, left)
		}
		if got.Reset.Before(before.Add(time.Hour).Truncate(time.Second)) || got.Remaining != 2 {
			t.Errorf("%+v", got)
		}
	}
}
