package main

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/edgetrace"
	"sluice/internal/fleetlimit"
	"sluice/internal/token"
	"sluice/internal/token/mirror"
	"sluice/internal/tracing"
	"sluice/nginx"
)

// edgeHelpers are the parts of an edge that run beside nginx, such as the receiver of spans. They must run until nginx
// has ended. Starting one sets its address in cfg.
type edgeHelpers struct {
	cfg  *nginx.Config
	log  *slog.Logger
	ends []func() // in the order of the start
}

// start runs a helper until close is called. close then calls end.
func (h *edgeHelpers) start(run func(ctx context.Context), end func()) {
	h.ends = append(h.ends, inBackground(run, end))
}

func (h *edgeHelpers) close() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
}

// inBackground starts run, and returns a function that stops it, waits for its return and calls end.
func inBackground(run func(ctx context.Context), end func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
		end()
	}
}

func (p *program) addHelpers(ctx context.Context, h *edgeHelpers, flags edgeFlags) error {
	registry := prometheus.NewRegistry()
	spans, err := p.openTracing(ctx, "sluice-edge", registry)
	if err != nil {
		return err
	}
	h.ends = append(h.ends, spans.Close)
	if spans != nil {
		if err := h.addSpans(spans, registry); err != nil {
			return err
		}
	}
	fleet, closeFleet, err := openFleet(flags.limitRedis, p.logger())
	if err != nil {
		return err
	}
	h.ends = append(h.ends, closeFleet)
	if fleet != nil {
		leases, err := fleetlimit.Serve(fleet, p.logger(), cmp.Or(h.cfg.Workers, runtime.NumCPU()))
		if err != nil {
			return err
		}
		h.start(leases.Run, leases.Close)
		h.cfg.LeaseSocket = leases.Socket()
	}
	if token.IsURL(flags.TokenKeys) {
		return h.addKeys(ctx, flags.keys)
	}
	return nil
}

// addSpans receives the spans that the workers of nginx record, and exports them.
func (h *edgeHelpers) addSpans(spans *tracing.Provider, registry *prometheus.Registry) error {
	receiver, err := edgetrace.Listen(edgetrace.New(spans), registry, h.log)
	if err != nil {
		return err
	}
	h.start(receiver.Run, receiver.Close)
	h.cfg.Spans = &nginx.Spans{Address: receiver.Address(), Tag: receiver.Tag(), Metrics: receiver.Metrics(),
		FollowParent: spans.Sampling.FollowParent, Ratio: spans.Sampling.Ratio}
	return nil
}

// addKeys fetches token keys from their URL, and provides them to the workers of nginx.
func (h *edgeHelpers) addKeys(ctx context.Context, keys *token.Keys) error {
	if err := keys.Await(ctx, h.log); err != nil {
		return err
	}
	m, err := mirror.New(keys, h.log)
	if err != nil {
		return err
	}
	h.start(m.Run, m.Close)
	h.cfg.TokenKeys, h.cfg.KeysSocket = m.File(), m.Socket()
	return nil
}
