package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/internal/tracing"
	"sluice/test/testenv"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// byParent samples spans below a sampled parent only.
var byParent = tracing.Sampling{FollowParent: true}

func recorded(t *testing.T, sampling tracing.Sampling) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithSampler(sampling.Sampler()))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return New(provider, "1"), spans
}

func headers(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// The start of a trace decides whether it is sampled: the traceparent if there is one, else the ratio.
func TestSamplingFollowsTheTraceparent(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	if r := tracer.Request("POST", "/x", nil, headers()); r != nil {
		t.Error("a request without a parent is sampled at ratio 0")
	}
	if r := tracer.Request("POST", "/x", nil, headers("traceparent", strings.TrimSuffix(parent, "1")+"0")); r != nil {
		t.Error("a request with an unsampled parent is sampled")
	}
	if r := tracer.Request("POST", "/x", nil, headers("traceparent", "nonsense")); r != nil {
		t.Error("a request with a malformed parent is sampled")
	}
	r := tracer.Request("POST", "/x", nil, headers("traceparent", parent))
	r.End(202)
	if all := spans.Ended(); len(all) != 1 || all[0].Parent().SpanID().String() != "00f067aa0ba902b7" ||
		!all[0].Parent().IsRemote() {
		t.Fatalf("spans %v", all)
	}
	ratioOnly, _ := recorded(t, tracing.Sampling{})
	if r := ratioOnly.Request("POST", "/x", nil, headers("traceparent", parent)); r != nil {
		t.Error("traceidratio follows the parent")
	}
}

// The spans of one purchase: the request, the decision below it, and the batch in its own trace with a link, with a
// second span below the decision.
func TestBatchLinksToItsOrders(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	r := tracer.Request("POST", "/v1/sales/{sale}/orders", nil, headers("traceparent", parent))
	sending := r.Send("s")
	kept := sending.Parent()
	sending.Decided(sale.Accepted, 12, nil)
	r.End(202)

	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	space := keyspace.Space{Shards: 3}
	client.Set(t.Context(), space.ShardOfOrder(12).Trace("12"), kept, 0)
	written := []Item{{Order: 11, SaleID: "s"}, {Order: 12, SaleID: "s"}, {Order: 13, SaleID: "other"}}
	NewParents(client, space).Fill(t.Context(), written)
	ctx, processing := tracer.Batch(t.Context(), Step{Operation: "process", Destination: "orders"}, 3, written)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		t.Error("the context does not carry the span of the batch")
	}
	processing.End(nil, map[sale.OrderID]string{12: "rejected"})

	byName := map[string][]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = append(byName[s.Name()], s)
	}
	sent, processed := byName["send orders"], byName["process orders"]
	if len(sent) != 1 || len(processed) != 2 || len(byName["POST /v1/sales/{sale}/orders"]) != 1 {
		t.Fatalf("spans %v", byName)
	}
	own, batch := processed[0], processed[1]
	if own.SpanContext().TraceID() != sent[0].SpanContext().TraceID() ||
		own.Parent().SpanID() != sent[0].SpanContext().SpanID() {
		t.Errorf("the parent of the order's span is %v", own.Parent())
	}
	links := batch.Links()
	if len(links) != 1 || links[0].SpanContext.SpanID() != sent[0].SpanContext().SpanID() || batch.Parent().IsValid() {
		t.Errorf("the batch has links %v and parent %v", links, batch.Parent())
	}
	if links := own.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != batch.SpanContext().SpanID() {
		t.Errorf("the order's span has links %v", links)
	}
	if own.Status().Description != "rejected" {
		t.Errorf("the order failed, and the status of its span is %+v", own.Status())
	}
}

// A purchase that is rejected or repeated sends no order.
func TestOnlyAcceptedPurchasesSendOrders(t *testing.T) {
	for _, row := range []struct {
		outcome sale.Outcome
		err     error
		spans   []string
	}{
		{sale.Accepted, nil, []string{"send orders", "POST /x"}},
		{sale.Accepted, context.DeadlineExceeded, []string{"send orders", "POST /x"}},
		{sale.Replayed, nil, []string{"POST /x"}},
		{sale.SoldOut, nil, []string{"POST /x"}},
	} {
		tracer, spans := recorded(t, byParent)
		r := tracer.Request("POST", "/x", []byte("/x"), headers("traceparent", parent))
		r.Send("s").Decided(row.outcome, 12, row.err)
		r.End(200)
		var names []string
		for _, s := range spans.Ended() {
			names = append(names, s.Name())
			want := codes.Unset
			if row.err != nil && s.Name() == "send orders" {
				want = codes.Error
			}
			if s.Status().Code != want {
				t.Errorf("%v, %v: %s has the status %v", row.outcome, row.err, s.Name(), s.Status())
			}
		}
		if !slices.Equal(names, row.spans) {
			t.Errorf("%v, %v: spans %v, want %v", row.outcome, row.err, names, row.spans)
		}
	}
}

func attributes(s sdk.ReadOnlySpan) map[string]string {
	values := map[string]string{}
	for _, a := range s.Attributes() {
		values[string(a.Key)] = a.Value.String()
	}
	return values
}

func TestRequestNamesTheServerThatTheClientUsed(t *testing.T) {
	for _, row := range []struct{ proto, host, scheme, address, port string }{
		{"https", "shop.example", "https", "shop.example", ""},
		{"https", "shop.example:8443", "https", "shop.example", "8443"},
		{"", "127.0.0.1:8080", "http", "127.0.0.1", "8080"},
		{"gopher", "[::1]:80", "http", "::1", "80"},
		{"", "", "http", "", ""},
		{"", "a:b:c", "http", "a:b:c", ""},
	} {
		tracer, spans := recorded(t, byParent)
		tracer.Request("GET", "/v1/orders/{id}", []byte("/v1/orders/7"), headers("traceparent", parent,
			"X-Forwarded-Proto", row.proto, "Host", row.host)).End(503)
		have := attributes(spans.Ended()[0])
		for name, want := range map[string]string{
			"url.path": "/v1/orders/7", "url.scheme": row.scheme, "server.address": row.address, "server.port": row.port,
			"error.type": "503",
		} {
			if have[name] != want {
				t.Errorf("%+v: %s is %q, want %q", row, name, have[name], want)
			}
		}
	}
}

// A span with invalid UTF-8 cannot be exported, and with it the others of its batch are lost. The paths of URLs are
// decoded, so a client can send any bytes.
func TestTextOfClientsIsRecordedAsUTF8(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	long := strings.Repeat("é", 8<<10)
	tracer.Request("GET", "/v1/orders/{id}", []byte("/v1/orders/\xff"), headers("traceparent", parent, "Host", "a\xff",
		"X-Request-Id", "x\xff"+long)).End(400)
	tracer.Request("GET", "/v1/orders/{id}", []byte(long), headers("traceparent", parent)).End(400)
	for _, span := range spans.Ended() {
		for name, value := range attributes(span) {
			if !utf8.ValidString(value) || len(value) > tracing.MaxText+utf8.UTFMax {
				t.Errorf("%s is %d bytes: %.40q", name, len(value), value)
			}
		}
	}
	if have := attributes(spans.Ended()[0])["url.path"]; have != "/v1/orders/\uFFFD" {
		t.Errorf("url.path is %q", have)
	}
}

// Commands have spans below sampled spans only. A missing key is no error.
func TestCommandsAreClientSpans(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	server := miniredis.RunT(t)
	client := testenv.NewOnceClient(server.Addr())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(tracer.Commands(server.Addr()))
	client.Set(t.Context(), "s", "x", 0)
	r := tracer.Request("GET", "/x", nil, headers("traceparent", parent))
	ctx := r.In(t.Context())
	client.Get(ctx, "none")
	client.LPush(ctx, "s", "x")
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "s"); p.Get(ctx, "none"); return nil })
	client.Get((*Request)(nil).In(t.Context()), "s")
	byName := map[string][]map[string]string{}
	for _, s := range spans.Ended() {
		if s.SpanKind() != trace.SpanKindClient {
			t.Errorf("%s has the kind %s", s.Name(), s.SpanKind())
		}
		byName[s.Name()] = append(byName[s.Name()], attributes(s))
	}
	port := strconv.Itoa(server.Server().Addr().Port)
	for name, kind := range map[string]string{"GET": "", "LPUSH": "WRONGTYPE", "PIPELINE": ""} { // a new connection adds its own
		have := byName[name]
		if len(have) == 0 || name == "GET" && len(have) > 1 {
			t.Errorf("%d spans of %s", len(have), name)
			continue
		}
		last := have[len(have)-1]
		if last["db.system.name"] != "redis" || last["db.operation.name"] != name || last["error.type"] != kind ||
			last["server.address"] != "127.0.0.1" || last["server.port"] != port {
			t.Errorf("%s: %v", name, last)
		}
	}
}

// A run of the script is below the first purchase, and has links to the others.
func TestScriptLinksToThePurchasesOfItsGroup(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	second := strings.Replace(parent, "4bf9", "5bf9", 1)
	tracer.Script([]string{parent, second})(errors.New("broken"))
	tracer.Script([]string{"nonsense"})(nil)
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	s := ended[0]
	if s.Parent().SpanID().String() != "00f067aa0ba902b7" || len(s.Links()) != 1 ||
		s.Links()[0].SpanContext.TraceID().String()[:4] != "5bf9" || attributes(s)["error.type"] != "_OTHER" {
		t.Errorf("parent %v, links %v, attributes %v", s.Parent(), s.Links(), s.Attributes())
	}
}

func TestPostIsPartOfTheTraceOfItsOrder(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	item := Item{Order: 7, SaleID: "shoe", Parent: parent}
	p := tracer.Post(item, "shop.example", 2)
	sent := parse(p.Parent())
	p.End(204, nil)
	tracer.Post(item, "shop.example", 3).End(503, nil)
	tracer.Post(item, "shop.example", 4).End(0, errors.New("no response"))
	for _, unsampled := range []string{"", "x", strings.TrimSuffix(parent, "1") + "0"} {
		item.Parent = unsampled
		if p := tracer.Post(item, "shop.example", 0); p != nil || p.Parent() != "" {
			t.Errorf("a POST with the parent %q is traced", unsampled)
		}
	}
	item.Parent = parent
	if off := (*Tracer)(nil).Post(item, "shop.example", 0); off.Parent() != "" {
		t.Error("a nil Tracer traces")
	} else {
		off.End(200, nil)
	}
	ended := spans.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans", len(ended))
	}
	for i, want := range []codes.Code{codes.Unset, codes.Error, codes.Error} {
		s := ended[i]
		if s.Parent().SpanID().String() != "00f067aa0ba902b7" || s.SpanKind() != trace.SpanKindClient ||
			s.Status().Code != want {
			t.Errorf("span %d: parent %s, kind %s, status %v", i, s.Parent().SpanID(), s.SpanKind(), s.Status())
		}
	}
	if sent.TraceID() != ended[0].SpanContext().TraceID() || sent.SpanID() != ended[0].SpanContext().SpanID() {
		t.Errorf("the request carries %v", sent)
	}
}

func TestBatchLinksAreBounded(t *testing.T) {
	tracer, spans := recorded(t, byParent)
	var items []Item
	for i := range 1000 {
		traceparent := fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)
		items = append(items, Item{Order: sale.OrderID(i + 1), SaleID: "s", Parent: traceparent})
	}
	_, b := tracer.Batch(t.Context(), Step{Operation: "send", Destination: "events"}, len(items), items)
	b.End(errors.New("unavailable"), nil)
	if all := spans.Ended(); len(all) != maxLinks+1 || len(all[maxLinks].Links()) != maxLinks ||
		all[maxLinks].DroppedLinks() != 0 {
		t.Errorf("%d spans", len(all))
	}
	untraced := []Item{{Order: 1}, {Order: 2, Parent: "nonsense"}}
	if _, b := tracer.Batch(t.Context(), Step{Operation: "send", Destination: "events"}, 1, untraced); b != nil {
		t.Error("a batch without a traced order is traced")
	}
}

// If Redis is not available, or the key has another type, the orders are not traced, and nothing fails.
func TestUnreadableParentsAreSkipped(t *testing.T) {
	server := miniredis.RunT(t)
	client := testenv.NewOnceClient(server.Addr())
	t.Cleanup(func() { _ = client.Close() })
	client.LPush(t.Context(), keyspace.Shard(0).Trace("1"), "not a string")
	items := []Item{{Order: 1, SaleID: "s"}, {Order: 2, SaleID: "s", Parent: parent}}
	parents := NewParents(client, keyspace.Space{})
	parents.Fill(t.Context(), items)
	server.Close()
	parents.Fill(t.Context(), items)
	if items[0].Parent != "" || items[1].Parent != parent {
		t.Errorf("items %+v", items)
	}
}

// failingShard is a client. Calls for one shard fail, as during its rebuild.
type failingShard struct {
	redisconn.Client
	shard keyspace.Shard
}

func (f failingShard) MGet(ctx context.Context, keys ...string) *redis.SliceCmd {
	if shard, _ := keyspace.ShardOfKey(keys[0]); shard == f.shard {
		cmd := redis.NewSliceCmd(ctx)
		cmd.SetErr(sale.ErrUnavailable)
		return cmd
	}
	return f.Client.MGet(ctx, keys...)
}

func TestOtherShardsHaveParentsWhileOneIsNotAvailable(t *testing.T) {
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	space := keyspace.Space{Shards: 16}
	var orders []Item
	for i := range 64 { // of most shards
		item := Item{Order: sale.OrderID(i + 1), SaleID: strconv.Itoa(i)}
		client.Set(t.Context(), space.ShardOfOrder(item.Order).Trace(item.Order.String()), parent, 0)
		orders = append(orders, item)
	}
	down := space.ShardOfOrder(orders[0].Order)
	for range 10 { // the order of the shards is random
		items := slices.Clone(orders)
		NewParents(failingShard{client, down}, space).Fill(t.Context(), items)
		for _, item := range items {
			if available := space.ShardOfOrder(item.Order) != down; available != (item.Parent == parent) {
				t.Fatalf("order %v of an available shard (%t) has the parent %q", item.Order, available, item.Parent)
			}
		}
	}
}

// A trace is in the shard that accepted its order, which is that of a segment.
func TestOrdersOfAllSegmentsHaveParents(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	space := keyspace.Space{Shards: 3}
	var items []Item
	for segment := range 3 {
		shard := space.ShardOfSegment("s", segment)
		id := sale.NewOrderID(sale.Epoch, uint32(shard)+3) // as its Sequencer allocates them
		client.Set(t.Context(), shard.Trace(id.String()), parent, 0)
		items = append(items, Item{Order: id, SaleID: "s"})
	}
	NewParents(client, space).Fill(t.Context(), items)
	for _, item := range items {
		if item.Parent != parent {
			t.Errorf("order %v has the parent %q", item.Order, item.Parent)
		}
	}
}

func TestNilTracerAllocatesNothing(t *testing.T) {
	var tracer *Tracer
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		r := tracer.Request("POST", "/x", nil, nil)
		s := r.Send("s")
		_ = s.Parent()
		s.Decided(sale.Accepted, 1, nil)
		r.End(202)
		_, b := tracer.Batch(ctx, Step{}, 1, nil)
		b.End(nil, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNilTracer(b *testing.B) {
	var tracer *Tracer
	b.ReportAllocs()
	for b.Loop() {
		r := tracer.Request("POST", "/x", nil, nil)
		s := r.Send("s")
		_ = s.Parent()
		s.Decided(sale.Accepted, 1, nil)
		r.End(202)
	}
}
