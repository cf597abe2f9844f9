package main

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver of the test's own connection

	"sluice/test/testenv"
)

// While sluice up waits for Redis, its addresses answer 503: a load balancer does not wait, and a purchase is repeated
// later. The same addresses serve once Redis is available.
func TestUpAnswersWhileItWaitsForRedis(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t)
	redis.Kill()
	public, admin, data := testenv.FreeAddress(t), testenv.FreeAddress(t), testenv.MemoryDir(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log testenv.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"up", "--redis", redis.URL, "--data", data, "--listen", public, "--admin", admin},
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

// A database that becomes unavailable when Redis is verified delays the start of sluice up, and does not end it.
func TestUpWaitsForADatabaseThatIsLocked(t *testing.T) {
	t.Parallel()
	data := testenv.MemoryDir(t)
	locking := &lockingLog{file: filepath.Join(data, databaseFile), when: "Redis is verified; purchases continue"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"up", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"},
			func(string) string { return "" }, io.Discard, locking)
	}()
	for _, text := range []string{"waiting for the stores", "edge listening"} {
		testenv.Eventually(t, time.Minute, "the log has "+text, func() bool {
			if len(ended) > 0 {
				t.Fatalf("sluice up ended: exit %d: %s", <-ended, &locking.Buffer)
			}
			return strings.Contains(locking.String(), text)
		})
		locking.unlock(t)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, &locking.Buffer)
	}
}

// lockingLog is a log. When a text is written to it, it locks the database in a file against other writers.
type lockingLog struct {
	testenv.Buffer

	file, when string
	db         *sql.DB // while it is locked
	err        error
}

func (l *lockingLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.when)) {
		if l.db, l.err = sql.Open("sqlite", "file:"+l.file+"?_pragma=busy_timeout(60000)"); l.err == nil {
			l.db.SetMaxOpenConns(1)
			_, l.err = l.db.Exec("BEGIN IMMEDIATE")
		}
	}
	return l.Buffer.Write(line)
}

// unlock ends the lock. Call it when the log has a later text.
func (l *lockingLog) unlock(t *testing.T) {
	t.Helper()
	if l.err != nil {
		t.Fatal(l.err)
	}
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
}
