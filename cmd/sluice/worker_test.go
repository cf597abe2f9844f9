package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// A lease out of bounds is rejected before the worker opens a store.
func TestWorkerRefusesALeaseOutOfBounds(t *testing.T) {
	for lease, ok := range map[string]bool{
		"0s": false, "-1s": false, "999999999ns": false, "1s": true, "1h": true, "1h0m0.000000001s": false,
	} {
		p := &program{getenv: func(string) string { return "" }, out: io.Discard, errOut: io.Discard}
		c := p.workerCommand()
		flags := []string{"--redis=redis://127.0.0.1:1/0", "--database=sqlite:x", "--lease=" + lease}
		if err := c.ParseFlags(flags); err != nil {
			t.Fatal(err)
		}
		c.SetContext(t.Context())
		if err := c.PreRunE(c, nil); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--lease") {
			t.Errorf("--lease %s: %v", lease, err)
		}
	}
}

// A watcher logs that it is up, without a listener for metrics and without Redis.
func TestWatcherLogsThatItIsUp(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	log, ended := &testenv.Buffer{}, make(chan int, 1)
	go func() {
		args := strings.Fields("watcher --log text --redis redis://127.0.0.1:1/0")
		ended <- run(ctx, args, func(string) string { return "" }, log, log)
	}()
	testenv.Eventually(t, time.Minute, "the watcher is up", func() bool {
		return strings.Contains(log.String(), "INF watcher is up shards=1\n")
	})
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit %d: %s", code, log)
	}
}
