package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestWorkerRefusesALeaseOutOfBounds(t *testing.T) {
	good := workerConfig{
		storesConfig: storesConfig{redisURL: "redis://127.0.0.1:6379/0", database: "sqlite:x", shards: 1, queue: driverList},
		concurrency:  1,
		batch:        1,
		lease:        10 * time.Second,
	}
	for lease, ok := range map[time.Duration]bool{
		0: false, -time.Second: false, time.Second - 1: false, time.Second: true, time.Hour: true, time.Hour + 1: false,
	} {
		cfg := good
		cfg.lease = lease
		if err := cfg.check(true); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--lease") {
			t.Errorf("--lease %s: %v", lease, err)
		}
	}
}

func TestBatchIDNamesHostAndProcess(t *testing.T) {
	ids := batchIDs()
	a, b := ids(), ids()
	if owner := fmt.Sprintf("-%d-", os.Getpid()); a == b || !strings.Contains(a, owner) || !strings.Contains(b, owner) {
		t.Errorf("%q and %q: want two ids with %q", a, b, owner)
	}
	if strings.ContainsAny(a, "{} ") {
		t.Errorf("%q does not fit into a Redis key", a)
	}
}
