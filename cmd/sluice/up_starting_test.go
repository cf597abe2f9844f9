package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// While sluice up waits for Redis, its addresses answer 503: a load balancer does not wait, and a purchase is repeated
// later. The same addresses serve once Redis is available.
func TestUpAnswersWhileItWaitsForRedis(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t)
	redis.Kill()
	public, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log testenv.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"up", "--redis", redis.URL, "--data", t.TempDir(), "--listen", public, "--admin", admin},
			func(string) string { return "" }, io.Discard, &log)
	}()
	testenv.Eventually(t, time.Minute, "sluice up waits for Redis", func() bool {
		return strings.Contains(log.String(), "waiting for Redis")
	})
	client := http.Client{Timeout: 30 * time.Second}
	for _, request := range []struct{ method, url string }{
		{"GET", "http://" + public + "/readyz"},
		{"POST", "http://" + public + "/v1/sales/demo/orders"},
		{"GET", "http://" + public + "/reference"}, // it is cached, and would describe an API without operations
		{"GET", "http://" + admin + "/readyz"},
		{"GET", "http://" + admin + "/admin/v1/sales"},
	} {
		req, err := http.NewRequestWithContext(ctx, request.method, request.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", request.method, request.url, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
			!strings.Contains(string(body), `"code":"temporarily-unavailable"`) {
			t.Errorf("%s %s: %s %v %s", request.method, request.url, resp.Status, resp.Header, body)
		}
	}
	redis.Start()
	testenv.AwaitOK(t, "http://"+public+"/readyz")
	testenv.AwaitOK(t, "http://"+admin+"/readyz")
	testenv.AwaitOK(t, "http://"+public+"/v1/sales/demo")
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, &log)
	}
}
