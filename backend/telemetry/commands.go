package telemetry

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/internal/tracing"
)

// Commands returns a hook that records commands to the Redis at an address as client spans below sampled spans, without
// their arguments. It returns nil if t is nil.
func (t *Tracer) Commands(address string) redis.Hook {
	if t == nil {
		return nil
	}
	c := commands{tracer: t}
	if _, _, err := net.SplitHostPort(address); err == nil { // a client of Sentinels has no fixed address
		c.server = tracing.Server(address)
	}
	return c
}

type commands struct {
	tracer *Tracer
	server []attribute.KeyValue
}

// DialHook implements redis.Hook.
func (c commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, span := c.tracer.call(ctx, "redis", strings.ToUpper(cmd.Name()), c.server...)
		err := next(ctx, cmd)
		endCommand(span, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, span := c.tracer.call(ctx, "redis", "PIPELINE", c.server...)
		if span != nil {
			span.SetAttributes(attribute.Int("db.operation.batch.size", len(cmds)))
		}
		err := next(ctx, cmds)
		endCommand(span, err)
		return err
	}
}

// Script starts the client span of a Redis script that decides several purchases in one run. Its parent is the first
// of the traceparents, and it has links to the others. The returned function ends it.
func (t *Tracer) Script(parents []string) (end func(err error)) {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parse(parents[0]))
	_, span := t.call(ctx, "redis", "EVALSHA")
	if span == nil {
		return func(error) {}
	}
	for _, parent := range parents[1:min(len(parents), maxLinks+1)] {
		span.AddLink(trace.Link{SpanContext: parse(parent)})
	}
	return func(err error) { endCommand(span, err) }
}

// endCommand ends the span of a command, which may be nil. A missing key is no error.
func endCommand(span trace.Span, err error) {
	if span == nil {
		return
	}
	var answer redis.Error
	switch {
	case err == nil || errors.Is(err, redis.Nil):
	case errors.As(err, &answer):
		kind, _, _ := strings.Cut(answer.Error(), " ")
		span.SetAttributes(attribute.String("db.response.status_code", kind))
		tracing.Fail(span, kind, answer.Error())
	default:
		fail(span, err)
	}
	span.End()
}
