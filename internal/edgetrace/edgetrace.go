// Package edgetrace exports the spans of the edges: one of the request that a client sent, and one below it of the
// request to a backend. Both edges use it, so their spans have the same form.
//
// All ids are derived from the request id, which is unique, and from the client's traceparent. An edge can therefore
// sample and forward a trace without this package; nginx does so in its configuration (nginx/snippets/spans.conf).
package edgetrace

import (
	"context"
	"encoding/hex"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"sluice/internal/tracing"
	"sluice/internal/unixsocket"
)

// IDSize is the number of hexadecimal digits, in lower case, of a request id.
const IDSize = 32

// The digits of a request id that form the ids of its spans. The first eight digits are equal for all requests of an
// nginx.
const (
	serverFrom, serverTo = 8, 24
	clientFrom, clientTo = 16, 32
)

// The digits of a valid traceparent: version, trace, span, flags.
const (
	parentSize           = 55
	traceFrom, traceTo   = 3, 35
	spanFrom, spanTo     = 36, 52
	lastFlag, sampledBit = 54, 1
)

// Recorder exports the spans of one edge. A nil Recorder is off. It is safe for concurrent use.
type Recorder struct {
	provider *tracing.Provider
	tracer   trace.Tracer
	sampling tracing.Sampling
}

// New returns a Recorder, or nil if the provider is nil.
func New(p *tracing.Provider) *Recorder {
	if p == nil {
		return nil
	}
	return &Recorder{p, p.Tracer("sluice", trace.WithInstrumentationVersion(p.Version)), p.Sampling}
}

// Full reports whether the spans of a request would be dropped because too many wait. If it returns true, it has
// counted a span as dropped, and the edge does not record the spans. This saves time in a flood of traced requests.
func (r *Recorder) Full() bool { return r.provider.Full() }

// Sampled reports whether the request with this id is sampled. parent is its valid traceparent, or nil. Sampled does
// not allocate.
func (r *Recorder) Sampled(id *[IDSize]byte, parent []byte) bool {
	if len(parent) == parentSize && r.sampling.FollowParent {
		return IsSampled(parent)
	}
	digits := id[:]
	if len(parent) == parentSize {
		digits = parent[traceFrom:traceTo]
	}
	var t trace.TraceID
	for i := range t {
		t[i] = digit(digits[2*i])<<4 | digit(digits[2*i+1])
	}
	return r.sampling.Includes(t)
}

// IsSampled reports whether the caller samples the trace of a valid traceparent.
func IsSampled(parent []byte) bool { return digit(parent[lastFlag])&sampledBit != 0 }

// digit returns the value of a lower-case hexadecimal digit.
func digit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// AppendParent appends the traceparent for a backend: the span of the request to it, in the trace of parent or, if that
// is nil, in a new trace.
func AppendParent(dst []byte, id *[IDSize]byte, parent []byte, sampled bool) []byte {
	dst = append(dst, "00-"...)
	if len(parent) == parentSize {
		dst = append(dst, parent[traceFrom:traceTo]...)
	} else {
		dst = append(dst, id[:]...)
	}
	dst = append(append(dst, '-'), id[clientFrom:clientTo]...)
	if sampled {
		return append(dst, "-01"...)
	}
	return append(dst, "-00"...)
}

// Request is a sampled request whose response is complete. Text from the client may have any length and need not be
// UTF-8. The JSON has the fields that nginx sends (nginx/snippets/spans.conf).
type Request struct {
	ID     string `json:"id"`     // 32 hexadecimal digits
	Parent string `json:"parent"` // the client's valid traceparent, or ""

	Begin time.Time `json:"-"`
	End   time.Time `json:"-"`
	Sent  time.Time `json:"-"` // when the first attempt to reach a backend began; zero: derived from Seconds

	Method  string `json:"method"` // of the request line, with Target, whose query is not recorded
	Target  string `json:"target"`
	Scheme  string `json:"scheme"` // http or https
	Host    string `json:"host"`   // the header
	Client  string `json:"client"` // address that the limits count
	Status  int    `json:"status"`
	Verdict string `json:"verdict"` // as in the access log
	Rule    string `json:"rule"`    // the rule that decided, as in the access log

	// The attempts to reach backends, in the format of nginx's log variables: separated by commas, or by colons after
	// an internal redirect. "" if there was none.
	Upstreams string `json:"upstream"`
	Statuses  string `json:"upstream_status"`
	Seconds   string `json:"upstream_seconds"`
}

// Record exports the spans of a request. It does not block. It ignores a request whose ids are not valid.
func (r *Recorder) Record(q *Request) {
	if r == nil {
		return
	}
	var server, client trace.SpanID
	id, err := trace.TraceIDFromHex(q.ID)
	if err != nil || !decode(server[:], q.ID[serverFrom:serverTo]) || !decode(client[:], q.ID[clientFrom:clientTo]) {
		return
	}
	ctx, ok := q.parent()
	if !ok {
		return
	}
	path := q.path()
	method, route := q.method(), routeOf(path)
	ctx, span := r.tracer.Start(tracing.Decided(ctx, id, server), name(method, route),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(q.Begin),
		trace.WithAttributes(q.attributes(method, route, path)...))
	r.recordAttempts(ctx, q, method, client)
	if q.Status >= 500 {
		tracing.Fail(span, strconv.Itoa(q.Status), "")
	}
	span.End(trace.WithTimestamp(q.End))
}

// recordAttempts exports the span of the request to a backend, if there was one. It covers all attempts, which have
// the same traceparent.
func (r *Recorder) recordAttempts(ctx context.Context, q *Request, method string, id trace.SpanID) {
	address, status, attempts := q.last()
	if attempts == 0 {
		return
	}
	all := append([]attribute.KeyValue{attribute.String("http.request.method", method),
		attribute.String("url.scheme", "http")}, backend(address)...)
	if attempts > 1 {
		all = append(all, attribute.Int("http.request.resend_count", attempts-1))
	}
	_, span := r.tracer.Start(tracing.Decided(ctx, trace.TraceID{}, id), name(method, ""),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(q.sent()), trace.WithAttributes(all...))
	if code, err := strconv.Atoi(status); err == nil {
		span.SetAttributes(attribute.Int("http.response.status_code", code))
		if code >= 400 { // an error for a client, by the conventions
			tracing.Fail(span, status, "")
		}
	} else {
		tracing.Fail(span, "_OTHER", "no response")
	}
	span.End(trace.WithTimestamp(q.End))
}

// backend returns the attributes of the backend at host:port or unix:/path.
func backend(address string) []attribute.KeyValue {
	if network, path := unixsocket.Network(address); network == "unix" {
		return []attribute.KeyValue{attribute.String("server.address", path), attribute.String("network.transport", "unix")}
	}
	return tracing.Server(address)
}

// parent returns a context with the client's span, if it has one. It reports false if Parent is malformed.
func (q *Request) parent() (context.Context, bool) {
	ctx := context.Background()
	if q.Parent == "" {
		return ctx, true
	}
	var t trace.TraceID
	var s trace.SpanID
	if len(q.Parent) != parentSize || !decode(t[:], q.Parent[traceFrom:traceTo]) ||
		!decode(s[:], q.Parent[spanFrom:spanTo]) || !t.IsValid() || !s.IsValid() {
		return ctx, false
	}
	flags := trace.TraceFlags(digit(q.Parent[lastFlag]) & sampledBit)
	return trace.ContextWithRemoteSpanContext(ctx,
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: t, SpanID: s, TraceFlags: flags})), true
}

func decode(dst []byte, digits string) bool {
	_, err := hex.Decode(dst, []byte(digits))
	return err == nil
}

// methods are the values of http.request.method that the conventions permit.
var methods = map[string]bool{
	"GET": true, "HEAD": true, "POST": true, "PUT": true, "DELETE": true, "CONNECT": true, "OPTIONS": true,
	"TRACE": true, "PATCH": true,
}

const otherMethod = "_OTHER"

func (q *Request) method() string {
	if methods[q.Method] {
		return q.Method
	}
	return otherMethod
}

// path returns the path of the target, decoded as in backends if it can be decoded.
func (q *Request) path() string {
	path, _, _ := strings.Cut(q.Target, "?")
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}

// name returns the name of a span, which has few values.
func name(method, route string) string {
	if method == otherMethod {
		method = "HTTP"
	}
	return strings.TrimSuffix(method+" "+route, " ")
}

// allowed is the verdict on a request that no rule rejected.
const allowed = "allow"

// attributes returns the attributes of the client's request.
func (q *Request) attributes(method, route, path string) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 13), attribute.String("http.request.method", method),
		attribute.Int("http.response.status_code", q.Status), attribute.String("url.path", tracing.Text(path)),
		attribute.String("client.address", q.Client),
		attribute.StringSlice("http.request.header.x-request-id", []string{q.ID}))
	all = append(all, tracing.Addressed(q.Scheme, tracing.Text(q.Host))...)
	if method == otherMethod {
		all = append(all, attribute.String("http.request.method_original", tracing.Text(q.Method)))
	}
	if route != "" {
		all = append(all, attribute.String("http.route", route))
	}
	if q.Verdict != "" {
		all = append(all, attribute.String("sluice.verdict", q.Verdict))
	}
	if q.Rule != "" && q.Verdict != allowed {
		all = append(all, attribute.String("sluice.rule", q.Rule))
	}
	return all
}

// last returns the address and the status of the last attempt, and the number of attempts. The status is not a number
// if there was no response.
func (q *Request) last() (address, status string, attempts int) {
	addresses, statuses := values(q.Upstreams), values(q.Statuses)
	for i, a := range addresses {
		if _, _, err := net.SplitHostPort(a); err != nil && !unixsocket.IsAddress(a) {
			continue // the name of an nginx upstream: no backend was tried
		}
		address, status = a, ""
		if attempts++; i < len(statuses) {
			status = statuses[i]
		}
	}
	return address, status, attempts
}

// sent returns the start of the first attempt. Without Sent, it assumes that the attempts ended with the request.
func (q *Request) sent() time.Time {
	if !q.Sent.IsZero() {
		return q.Sent
	}
	begin := q.End
	for _, text := range values(q.Seconds) {
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
			begin = begin.Add(-time.Duration(seconds * float64(time.Second)))
		}
	}
	if begin.Before(q.Begin) {
		return q.Begin
	}
	return begin
}

// values splits the value of a log variable of nginx.
func values(text string) []string {
	if text == "" || text == "-" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text, " : ", ", "), ", ")
}
