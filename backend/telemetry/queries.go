package telemetry

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/internal/tracing"
)

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

func (q queries) end(ctx context.Context, err error) {
	span, _ := ctx.Value(querySpan{}).(trace.Span)
	if span == nil {
		return
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		span.SetAttributes(attribute.String("db.response.status_code", answer.Code))
		tracing.Fail(span, answer.Code, answer.Message)
	} else if err != nil {
		fail(span, err)
	}
	span.End()
}

// firstWord returns the first word of a statement in upper case: its operation.
func firstWord(statement string) string {
	words := strings.Fields(statement[:min(len(statement), 64)])
	if len(words) == 0 {
		return "EMPTY"
	}
	return strings.ToUpper(strings.TrimRight(words[0], ";"))
}
