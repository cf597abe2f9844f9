package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

// observed is a deployment in which Prometheus scrapes every program and traces go to a collector.
type observed struct {
	*stack
	collector *otlpCollector
	edges     map[string]string // base URL by edge
	metrics   map[string]string // address by program

	mu           sync.Mutex
	traceparents []string // the traceparents of webhooks
}

func startObserved(t *testing.T) *observed {
	c := newOTLPCollector(t)
	o := &observed{collector: c, edges: map[string]string{}, metrics: map[string]string{}}
	hooked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hook" {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.traceparents = append(o.traceparents, r.Header.Get("traceparent"))
		}
	}))
	t.Cleanup(hooked.Close)
	env := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL,
		"OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_TRACES_SAMPLER_ARG=0",
		"SLUICE_ALLOW_PRIVATE=127.0.0.0/8",
		"SLUICE_JOURNAL=" + t.TempDir(),
	}
	o.stack = startStack(t, shape{backends: 1, env: env})
	hook := `{"url":"` + hooked.URL + `/hook","title":"Shop","types":[],"sales":[],"strict":false}`
	run := func(name string, args ...string) {
		o.metrics[name] = addr(t)
		launch(t, o.env, append(args, "--metrics", o.metrics[name])...)
	}
	for _, edge := range []string{"gateway", "edge"} {
		listen := addr(t)
		o.edges[edge] = "http://" + listen
		run(edge, edge, "--listen", listen, "--policy", filepath.Join(root, "lua/policy.lua"), "--upstream", o.base)
	}
	run("worker", "worker")
	run("watcher", "watcher")
	run("points", "group", "run", "points")
	run("webhooks", "group", "run", "webhooks")
	run("web-push", "group", "run", "web-push")
	o.metrics["backend"] = strings.TrimPrefix(o.admin, "http://")
	for _, base := range o.edges {
		testenv.AwaitOK(t, base+"/healthz")
	}
	if a := o.adminAPI("POST", "/admin/v1/webhooks", hook); a.Status != 201 {
		t.Fatalf("an endpoint: %d %s", a.Status, a.Body)
	}
	// The relay deletes events that all registered groups have handled: a group that registers later misses them.
	testenv.Eventually(t, time.Minute, "the groups are registered", func() bool {
		return len(groupsAt(o.admin, adminToken)) == len(chaosGroups)
	})
	return o
}

// One purchase through each edge is one trace, from the caller's span to the row and the notifications, and
// Prometheus has every metric that the dashboard, the alerts and the documentation use.
func TestPurchaseIsTracedFromTheEdgeToNotifications(t *testing.T) {
	t.Parallel()
	o := startObserved(t)
	o.createSale("night", 10)
	const caller = "00f067aa0ba902b7"
	traces := map[string]string{}
	for i, edge := range []string{"gateway", "edge"} {
		traces[edge] = fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e473%d", i)
		a := do(t, "POST", o.edges[edge]+"/v1/sales/night/orders", o.token("buyer "+edge), "", "traceparent",
			"00-"+traces[edge]+"-"+caller+"-01")
		if a.Status != 202 {
			t.Fatalf("%s: %d %s", edge, a.Status, a.Body)
		}
		note := o.redis.Client().PTTL(t.Context(), keyspace.Shard(0).Trace(a.OrderID)).Val()
		if note <= 0 || note > time.Hour {
			t.Errorf("the order's trace is kept for %v", note)
		}
	}
	unsampled := "4bf92f3577b34da6a3ce929d0e0e4739"
	for _, parent := range []string{"", "00-" + unsampled + "-" + caller + "-00"} {
		if a := do(t, "POST", o.edges["edge"]+"/v1/sales/night/orders", o.token("buyer "+parent), "", "traceparent",
			parent); a.Status != 202 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	o.settle("night", 4)
	for edge, id := range traces {
		o.wantTrace(t, edge, id, caller)
	}
	if all := o.collector.trace(unsampled); len(all) > 0 {
		t.Errorf("an unsampled purchase has %d spans", len(all))
	}
	if keys := o.redis.Client().Keys(t.Context(), keyspace.Shard(0).Trace("*")).Val(); len(keys) != 2 {
		t.Errorf("traces of %d orders are kept, want 2", len(keys))
	}
	o.checkMetrics(t)
}

// edgeServices are the names of the edges in traces.
var edgeServices = map[string]string{"gateway": "sluice-gateway", "edge": "sluice-edge"}

// wantEdgeSpans waits for the two spans of an edge in a trace, and returns the id of the one below which a backend
// continues.
func (o *observed) wantEdgeSpans(t *testing.T, service, id, name, caller string) string {
	t.Helper()
	method, _, _ := strings.Cut(name, " ")
	var server, client *span
	testenv.Eventually(t, time.Minute, "the spans of "+service, func() bool {
		server, client = o.collector.find(id, service, name, ""), o.collector.find(id, service, method, "")
		return server != nil && client != nil
	})
	if got := hex.EncodeToString(server.GetParentSpanId()); got != caller {
		t.Errorf("%s: the request is below %s", service, got)
	}
	if string(client.GetParentSpanId()) != string(server.GetSpanId()) {
		t.Errorf("%s: the request to a backend is not below that of the client", service)
	}
	return hex.EncodeToString(client.GetSpanId())
}

// wantTrace waits until a trace is complete, and checks the parents and links of its spans.
func (o *observed) wantTrace(t *testing.T, edge, id, caller string) {
	t.Helper()
	const purchase, hook = "POST /v1/sales/{sale}/orders", "POST webhook"
	steps := []struct{ service, name, group string }{
		{"sluice-backend", purchase, ""},
		{"sluice-backend", "send orders", ""},
		{"sluice-backend", "EVALSHA", ""},
		{"sluice-worker", "process orders", ""},
		{"sluice-backend", "send events", ""},
		{"sluice-group-points", "process events", "points"},
		{"sluice-group-webhooks", "process events", "webhooks"},
		{"sluice-group-web-push", "process events", "web-push"},
		{"sluice-group-webhooks", hook, ""},
	}
	for _, s := range steps {
		step := fmt.Sprintf("the trace through %s has the span %q of %s", edge, s.name, s.service)
		testenv.Eventually(t, time.Minute, step, func() bool {
			return o.collector.find(id, s.service, s.name, s.group) != nil
		})
	}
	request, sending := o.collector.find(id, "sluice-backend", purchase, ""), o.collector.find(id, "sluice-backend",
		"send orders", "")
	above := o.wantEdgeSpans(t, edgeServices[edge], id, purchase, caller)
	if got := hex.EncodeToString(request.GetParentSpanId()); got != above {
		t.Errorf("%s: the request is below %s, want %s", edge, got, above)
	}
	if string(sending.GetParentSpanId()) != string(request.GetSpanId()) {
		t.Errorf("%s: the sending is not below the request", edge)
	}
	for _, s := range steps[3:] {
		own := o.collector.find(id, s.service, s.name, s.group)
		if string(own.GetParentSpanId()) != string(sending.GetSpanId()) ||
			own.attribute("sluice.order.id") != sending.attribute("sluice.order.id") {
			t.Errorf("%s: %s of %s is not below the sending of its order", edge, s.name, s.service)
		}
		if s.name == hook {
			o.mu.Lock()
			if want := fmt.Sprintf("00-%s-%x-01", id, own.GetSpanId()); !slices.Contains(o.traceparents, want) {
				t.Errorf("%s: no webhook carried %s, but %q", edge, want, o.traceparents)
			}
			o.mu.Unlock()
			continue
		}
		if len(own.GetLinks()) != 1 {
			t.Errorf("%s: %s of %s links to %d batches", edge, s.name, s.service, len(own.GetLinks()))
			continue
		}
		var batch []span // it ends after the spans of its orders
		linksBack := func(l *otlpLink) bool { return string(l.GetSpanId()) == string(sending.GetSpanId()) }
		testenv.Eventually(t, time.Minute, edge+": the batch of "+s.name+" links back", func() bool {
			batch = o.collector.trace(hex.EncodeToString(own.GetLinks()[0].GetTraceId()))
			return slices.ContainsFunc(batch, func(b span) bool { return slices.ContainsFunc(b.GetLinks(), linksBack) })
		})
		inSQL := func(b span) bool { return b.attribute("db.system.name") == "postgresql" }
		if s.service == "sluice-worker" && !slices.ContainsFunc(batch, inSQL) {
			t.Errorf("%s: the batch of the worker has no span of a statement: %v", edge, batch)
		}
	}
}

var ourMetric = regexp.MustCompile(`\bsluice_[a-z_]+`)

// exported returns the metrics of all programs together: the names of samples as a query uses them, and the names of
// families. Each program must export its build information and resource usage.
func (o *observed) exported(t *testing.T) (samples, families map[string]bool) {
	t.Helper()
	samples, families = map[string]bool{}, map[string]bool{}
	for program, address := range o.metrics {
		text := string(do(t, "GET", "http://"+address+"/metrics", "", "").Body)
		var ours strings.Builder
		for line := range strings.Lines(text) {
			switch name := ourMetric.FindString(line); {
			case name == "":
				continue
			case strings.HasPrefix(line, "# TYPE "):
				families[name] = true
			case !strings.HasPrefix(line, "#"):
				samples[name] = true
			}
			ours.WriteString(line)
		}
		if problems, err := promlint.New(strings.NewReader(ours.String())).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %v", program, problems, err)
		}
		if !strings.Contains(text, "\nsluice_build_info{") {
			t.Errorf("%s exports no build information:\n%s", program, text)
		}
		if program != "edge" && !strings.Contains(text, "\nprocess_cpu_seconds_total ") {
			t.Errorf("%s does not export its resource usage", program)
		}
	}
	return samples, families
}

// checkMetrics compares the exported metrics with the documentation, the dashboard and the alerts.
func (o *observed) checkMetrics(t *testing.T) {
	t.Helper()
	documented := documentedMetrics(t)
	var samples, families map[string]bool
	var missing []string
	defer func() {
		if len(missing) > 0 {
			t.Logf("no program exports these metrics of docs/observability.md: %v", missing)
		}
	}()
	testenv.Eventually(t, time.Minute, "all documented metrics are exported", func() bool {
		samples, families = o.exported(t)
		missing = slices.DeleteFunc(slices.Sorted(maps.Keys(documented)), func(name string) bool { return families[name] })
		return t.Failed() || samples["sluice_sale_left_units"] && len(missing) == 0
	})
	for name := range families {
		if !documented[name] {
			t.Errorf("docs/observability.md does not explain %s", name)
		}
	}
	for _, file := range []string{"observe/prometheus/alerts.yml", "observe/grafana/dashboards/sluice.json"} {
		for _, name := range namesIn(t, file) {
			if !samples[name] {
				t.Errorf("%s queries %s, which no program exports", file, name)
			}
		}
	}
}

func namesIn(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(file, ".json") {
		var board struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		text = nil
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				text = append(append(text, target.Expr...), '\n')
			}
		}
	}
	names := ourMetric.FindAllString(string(text), -1)
	if len(names) < 20 {
		t.Fatalf("%s names %d metrics", file, len(names))
	}
	return names
}

// documentedMetrics returns the metrics in the tables of docs/observability.md: the first cell of each row.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(sluice_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		if names[m[1]] {
			t.Errorf("docs/observability.md explains %s twice", m[1])
		}
		names[m[1]] = true
	}
	return names
}
