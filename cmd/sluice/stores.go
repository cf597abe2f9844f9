package main

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/store"
	"sluice/backend/telemetry"
	"sluice/internal/assemble"
	"sluice/internal/tracing"
)

// openTracing returns the exporter of spans of a process that is named service in traces; it is nil without an
// endpoint.
func (p *program) openTracing(
	ctx context.Context, service string, registry prometheus.Registerer,
) (*tracing.Provider, error) {
	spans, err := tracing.Open(ctx, tracing.Config{
		Getenv: p.getenv, Service: service, Version: version, Log: p.logger(), Registry: registry,
	})
	if err != nil {
		return nil, usage("%w", err)
	}
	return spans, nil
}

// openStores opens the stores of a process that is named service in traces.
func (p *program) openStores(
	ctx context.Context, service string, cfg assemble.StoresConfig, registry prometheus.Registerer,
) (s *assemble.Stores, closeAll func(), err error) {
	spans, err := p.openTracing(ctx, service, registry)
	if err != nil {
		return nil, nil, err
	}
	if s, err = p.tracedStores(ctx, cfg, spans); err != nil {
		spans.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); spans.Close() }, nil
}

// tracedStores opens stores that export spans.
func (p *program) tracedStores(
	ctx context.Context, cfg assemble.StoresConfig, spans *tracing.Provider,
) (*assemble.Stores, error) {
	cfg.Log = p.logger()
	if spans != nil {
		cfg.Tracer = telemetry.New(spans, version)
	}
	s, err := assemble.OpenStores(ctx, cfg)
	err = orInterrupted(ctx, err)
	if bad, ok := errors.AsType[*store.URLError](err); ok {
		source := "--database"
		if cfg.Database == p.getenv(envDatabase) {
			source = envDatabase
		}
		return nil, usage("%s: %s", source, bad.Detail)
	}
	return s, err
}
