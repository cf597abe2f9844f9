package proxy

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The coarse clock has ticks only while it is read or connections are idle, and is never late by more than a tick.
func TestCoarseClockSleepsWhileItIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{
			Upstreams: []string{"backend:80"}, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.maintain(ctx) }()
		read := func() {
			t.Helper()
			synctest.Wait()
			if late := p.clock.now() - p.clock.coarse(); late < 0 || late > tickEvery.Milliseconds() {
				t.Errorf("the coarse clock is late by %d ms", late)
			}
		}
		for range 3 {
			for range 30 { // busy
				read()
				time.Sleep(77 * time.Millisecond)
			}
			if p.clock.stopped.Load() {
				t.Error("the clock stopped while it was read")
			}
			time.Sleep(2*pruneEvery + time.Millisecond)
			synctest.Wait()
			if !p.clock.stopped.Load() {
				t.Error("the clock has ticks although it is not read")
			}
			at := p.clock.ticks.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			if p.clock.ticks.Load() != at {
				t.Error("a clock that is not read has ticks")
			}
		}
		read() // it wakes
		synctest.Wait()
		if p.clock.stopped.Load() {
			t.Error("a read did not wake the clock")
		}
		stop()
		<-done
	})
}
