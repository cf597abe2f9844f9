package telemetry

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/redis/redisconn"
	"sluice/internal/tracing"
)

// call starts the span of a database call below the span in ctx. It returns a nil span if that span is not sampled.
func (t *Tracer) call(
	ctx context.Context, system, operation string, attributes ...attribute.KeyValue,
) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, nil
	}
	return t.tracer.Start(ctx, operation, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", system), attribute.String("db.operation.name", operation),
	), trace.WithAttributes(attributes...))
}

// endCall ends the span of a database call, which may be nil. A missing key is no error.
func endCall(span trace.Span, err error) {
	if span == nil {
		return
	}
	var code, message string // of the response
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		code, message = answer.Code, answer.Message
	} else if answer, ok := errors.AsType[redis.Error](err); ok {
		message = answer.Error()
		code, _, _ = strings.Cut(message, " ")
	}
	switch {
	case err == nil || errors.Is(err, redis.Nil):
	case code != "":
		span.SetAttributes(attribute.String("db.response.status_code", code))
		tracing.Fail(span, code, message)
	default:
		fail(span, err)
	}
	span.End()
}

// Commands returns a hook that records commands to the Redis at an address as client spans below sampled spans, without
// their arguments.
func (t *Tracer) Commands(address string) redisconn.Around {
	var server []attribute.KeyValue
	if _, _, err := net.SplitHostPort(address); err == nil { // a client of Sentinels has no fixed address
		server = tracing.Server(address)
	}
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		operation := "PIPELINE"
		if len(cmds) == 1 {
			operation = strings.ToUpper(cmds[0].Name())
		}
		ctx, span := t.call(ctx, "redis", operation, server...)
		if span != nil && len(cmds) > 1 {
			span.SetAttributes(attribute.Int("db.operation.batch.size", len(cmds)))
		}
		err := next(ctx, cmds)
		endCall(span, err)
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
	return func(err error) { endCall(span, err) }
}

// Queries returns a tracer of pgx that records statements as client spans below sampled spans, without their arguments.
// It returns nil if t is nil.
func (t *Tracer) Queries() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return queries{t}
}

type queries struct{ tracer *Tracer }

// TraceQueryStart implements pgx.QueryTracer.
func (q queries) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return q.start(ctx, conn, data.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (q queries) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	q.end(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. Statements that are sent together are one span, named after the first.
func (q queries) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if data.Batch.Len() == 0 {
		return ctx
	}
	return q.start(ctx, conn, data.Batch.QueuedQueries[0].SQL)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (q queries) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (q queries) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	q.end(ctx, data.Err)
}

func (q queries) start(ctx context.Context, conn *pgx.Conn, statement string) context.Context {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx
	}
	c := conn.Config()
	ctx, span := q.tracer.call(ctx, "postgresql", firstWord(statement), attribute.String("db.namespace", c.Database),
		attribute.String("server.address", c.Host), attribute.Int("server.port", int(c.Port)))
	return context.WithValue(ctx, querySpan{}, span)
}

// querySpan is the key of the span that start began.
type querySpan struct{}

func (queries) end(ctx context.Context, err error) {
	span, _ := ctx.Value(querySpan{}).(trace.Span)
	endCall(span, err)
}

// firstWord returns the first word of a statement in upper case: its operation.
func firstWord(statement string) string {
	words := strings.Fields(statement[:min(len(statement), 64)])
	if len(words) == 0 {
		return "EMPTY"
	}
	return strings.ToUpper(strings.TrimRight(words[0], ";"))
}
