// Package chartcheck lints the Helm chart with helm and validates what it renders with kubeconform, against schemas of
// this directory. It is a module of its own, because helm takes a minute to compile.
package chartcheck

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
)

const chartDir = "../chart/sluice"

var components = []string{"edge", "backend", "worker", "points", "webhooks", "web-push"}

// everything sets each value that adds something to the manifests.
var everything = map[string]any{
	"existingSecret":   "sluice",
	"secrets":          map[string]any{"database-url": map[string]any{"name": "shop-db-app", "key": "uri"}},
	"tokenKeys":        "https://login.shop.example/jwks.json",
	"tokenIssuer":      "https://login.shop.example/",
	"tokenAudience":    "sluice: \"sale\"",
	"imagePullSecrets": []any{map[string]any{"name": "registry"}},
	"nodeSelector":     map[string]any{"kubernetes.io/arch": "arm64"},
	"tolerations":      []any{map[string]any{"key": "sale", "operator": "Exists"}},
	"podAnnotations":   map[string]any{"example.com/owner": "shop"},
	"edge": map[string]any{
		"policy":    "return { rules = {} }\n-- \"quoted\"\n",
		"extraArgs": []any{"--per-client=100"},
		"service": map[string]any{
			"type": "LoadBalancer", "annotations": map[string]any{"example.com/balancer": "internal"},
		},
	},
	"backend": map[string]any{
		"replicas": 3, "signIn": "https://shop.example/login?back={url}",
		"checkout": "https://shop.example/pay?order={order}&sale={sale}",
		"journal":  map[string]any{"storageClassName": "fast"}, "extraArgs": []any{"--max-ready=5000"},
	},
	"worker":   map[string]any{"extraArgs": []any{"--batch=100"}},
	"points":   map[string]any{"replicas": 2, "rate": "3/200", "extraArgs": []any{"--log=json"}},
	"webhooks": map[string]any{"replicas": 2, "extraArgs": []any{"--allow-private=10.0.0.0/8"}},
	"webPush": map[string]any{
		"replicas": 2, "contact": "mailto:shop@example.com", "extraArgs": []any{"--web-push-hold=1m"},
	},
	"networkPolicy": map[string]any{
		"edgeFrom":    []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}},
		"adminFrom":   []any{map[string]any{"namespaceSelector": map[string]any{}}},
		"metricsFrom": []any{map[string]any{"podSelector": map[string]any{}}},
		"storesTo":    []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.1.0.0/16"}}},
	},
	"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
}

var cases = map[string]map[string]any{
	"least": {"existingSecret": "sluice"}, "everything": everything,
	"no network policy": {"existingSecret": "sluice", "networkPolicy": map[string]any{"enabled": false}},
	"no autoscaling": {
		"existingSecret": "sluice",
		"edge":           map[string]any{"autoscaling": map[string]any{"enabled": false}, "replicas": 3},
		"worker":         map[string]any{"autoscaling": map[string]any{"enabled": false}, "replicas": 1},
	},
	// Each value from the Secret of an operator, and tokens of an identity provider only.
	"secrets of others": {
		"tokenKeys": "https://login.example:8443/keys?a=1&b=%20#2",
		"secrets": map[string]any{
			"admin-token":  map[string]any{"name": "shop.admin"},
			"redis-url":    map[string]any{"name": "shop-redis", "key": "url"},
			"database-url": map[string]any{"name": "shop-db-app", "key": "uri"},
			"token-secret": map[string]any{"name": "none"}, "payment-secret": map[string]any{"name": "shop-payment"},
			"vapid-key": map[string]any{"name": "shop-push"}, "limit-redis-url": map[string]any{"name": "shop-redis"},
			"orders-replica-url": map[string]any{"name": "shop-db-replica", "key": "uri"},
		},
		"caBundle": map[string]any{"name": "shop-ca", "key": "root.pem"},
		"env":      map[string]any{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "HTTPS_PROXY": "a: #b"},
		"edge":     map[string]any{"fleet": true},
		"envFrom":  []any{map[string]any{"secretRef": map[string]any{"name": "shop-otel"}}},
		"points":   map[string]any{"replicas": 1},
		"webhooks": map[string]any{"replicas": 1},
		"webPush":  map[string]any{"replicas": 1, "contact": "https://shop.example"},
		"networkPolicy": map[string]any{"httpsPorts": []any{443, 8443}, "storePorts": []any{6380}, "egress": []any{
			map[string]any{"ports": []any{map[string]any{"port": 4318}}},
		}},
	},
}

// load returns the packed chart that the environment names, or the chart of this repository.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	path := chartDir
	if packed := os.Getenv("SLUICE_CHART"); packed != "" {
		path = packed
	}
	c, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func render(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	c := load(t)
	full, err := chartutil.ToRenderValues(c, values,
		chartutil.ReleaseOptions{Name: "shop", Namespace: "sales", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, full)
}

func TestLint(t *testing.T) {
	for name, values := range cases {
		for _, m := range lint.All(chartDir, values, "sales", false).Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

// schemas writes a directory in the layout of kubeconform, with the kinds of kubernetes.json and ServiceMonitor.
func schemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("kubernetes.json")
	if err != nil {
		t.Fatal(err)
	}
	var bundle struct {
		Kinds       map[string]string         `json:"kinds"`
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &bundle); err != nil {
		t.Fatal(err)
	}
	write := func(groupVersion, kind string, schema []byte) {
		group, version, _ := strings.Cut(groupVersion, "/")
		group, _, _ = strings.Cut(group, ".")
		name := strings.TrimSuffix(strings.ToLower(kind)+"-"+group+"-"+version, "-") + ".json"
		if err := os.WriteFile(filepath.Join(dir, name), schema, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for key, name := range bundle.Kinds {
		at := strings.LastIndex(key, "/")
		schema := maps.Clone(bundle.Definitions[name])
		schema["definitions"] = bundle.Definitions
		schema["required"] = []string{"apiVersion", "kind", "metadata"}
		out, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		write(key[:at], key[at+1:], out)
	}
	monitor, err := os.ReadFile("servicemonitor.json")
	if err != nil {
		t.Fatal(err)
	}
	write("monitoring.coreos.com/v1", "ServiceMonitor", monitor)
	return dir
}

func conform(t *testing.T, manifests map[string]string) (valid int, bad []string) {
	t.Helper()
	v, err := validator.New(
		[]string{schemas(t) + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"},
		validator.Opts{Strict: true, KubernetesVersion: "master"})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range manifests {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, r := range v.Validate(name, io.NopCloser(strings.NewReader(text))) {
			switch r.Status {
			case validator.Valid:
				valid++
			case validator.Empty:
			default:
				sig, _ := r.Resource.Signature()
				bad = append(bad, name+": "+sig.Kind+" "+sig.Name+": "+r.Err.Error())
			}
		}
	}
	return valid, bad
}

func TestManifestsAreValid(t *testing.T) {
	for name, want := range map[string]int{
		"least": 14, "everything": 35, "no network policy": 11, "no autoscaling": 12, "secrets of others": 23,
	} {
		manifests, err := render(t, cases[name])
		if err != nil {
			t.Fatal(err)
		}
		valid, bad := conform(t, manifests)
		for _, b := range bad {
			t.Errorf("%s: %s", name, b)
		}
		if valid != want {
			t.Errorf("%s: %d valid resources, want %d", name, valid, want)
		}
	}
}

func TestManifestsHaveNoBlankLines(t *testing.T) {
	blank := regexp.MustCompile(`\n[^\n]*\n[ \t]*\n[^\n]*`)
	for name, values := range cases {
		manifests, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		delete(manifests, "sluice/templates/NOTES.txt")
		for file, text := range manifests {
			for _, found := range blank.FindAllString(text, -1) {
				t.Errorf("%s: %s:%s", name, file, found)
			}
		}
	}
}

// The schemas reject what Kubernetes rejects.
func TestSchemasAreStrict(t *testing.T) {
	manifests, err := render(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{"minReadySeconds: 3", "minReadySecond: 3"}, {"maxUnavailable: 1", "maxUnavailable: [1]"},
		{"minReplicas: 2", `minReplicas: "2"`}, {"serviceName: ", "serviceNames: "}, {"podSelector:", "podSelectors:"},
		{"endpoints:", "endpoint:"}, {"targetPort: http", "targetPort: true"},
	} {
		broken, found := maps.Clone(manifests), false
		for name, text := range broken {
			if strings.Contains(text, c[0]) {
				broken[name], found = strings.Replace(text, c[0], c[1], 1), true
			}
		}
		if _, bad := conform(t, broken); !found || len(bad) == 0 {
			t.Errorf("%q instead of %q is accepted (found: %v)", c[1], c[0], found)
		}
	}
}

func TestInvalidValuesAreRejected(t *testing.T) {
	section := func(name string, values map[string]any) map[string]any {
		return map[string]any{"existingSecret": "s", name: values}
	}
	for _, c := range []struct {
		want   string
		values map[string]any
	}{
		{"existingSecret is empty", nil},
		{"existingSecret", map[string]any{"existingSecret": "Not_A_Name"}},
		{"existingSecret", map[string]any{"existingSecret": "s, key: other"}},
		{"redis-url", map[string]any{"secrets": map[string]any{"database-url": map[string]any{"name": "db"}}}},
		{"propertyName 'database'", section("secrets", map[string]any{"database": map[string]any{"name": "db"}})},
		{"caBundle", section("caBundle", map[string]any{"name": "shop-ca", "keys": "ca.crt"})},
		{"key", section("caBundle", map[string]any{"name": "shop-ca", "key": "a, b"})},
		{"got number, want string", section("env", map[string]any{"OTEL_TRACES_SAMPLER_ARG": 0.001})},
		{"propertyName 'A-B'", section("env", map[string]any{"A-B": "c"})},
		{"propertyName 'SLUICE_REDIS_URL'", section("env", map[string]any{"SLUICE_REDIS_URL": "redis://:password@redis"})},
		{"propertyName 'SSL_CERT_DIR'", section("env", map[string]any{"SSL_CERT_DIR": "/etc/certs"})},
		{"egress", section("networkPolicy", map[string]any{"egress": []any{4318}})},
		{"name", section("secrets", map[string]any{"redis-url": map[string]any{"key": "url"}})},
		{"key", section("secrets", map[string]any{"redis-url": map[string]any{"name": "r", "key": "a b"}})},
		{"secrets", section("secrets", map[string]any{"redis-url": "redis://127.0.0.1"})},
		{"shards", map[string]any{"existingSecret": "s", "shards": 65}},
		{"queue", map[string]any{"existingSecret": "s", "queue": "kafka"}},
		{"tokenKeys", map[string]any{"existingSecret": "s", "tokenKeys": "http://plain.example"}},
		{"replica", section("backend", map[string]any{"replica": 3})},
		{"replicas", section("backend", map[string]any{"replicas": 0})},
		{"userRate", section("backend", map[string]any{"userRate": "many"})},
		{"checkout", section("backend", map[string]any{"checkout": "shop.example/pay"})},
		{"checkout", section("backend", map[string]any{"checkout": "https://shop.example/pay"})},
		{"signIn", section("backend", map[string]any{"signIn": "https://shop.example/login"})},
		{"size", section("backend", map[string]any{"journal": map[string]any{"size": "much"}})},
		{"sync", section("backend", map[string]any{"journal": map[string]any{"sync": "never"}})},
		{"minReplicas", section("edge", map[string]any{"autoscaling": map[string]any{"minReplicas": 0}})},
		{"greater than", section("edge", map[string]any{"autoscaling": map[string]any{"minReplicas": 7}})},
		{"greater than", section("worker", map[string]any{"autoscaling": map[string]any{"minReplicas": 5}})},
		{"replicas", section("edge", map[string]any{"replicas": "two"})},
		{"fleet", section("edge", map[string]any{"fleet": "yes"})},
		{"type", section("edge", map[string]any{"service": map[string]any{"type": "ExternalName"}})},
		{"rate", section("points", map[string]any{"rate": "1/0"})},
		{"rate", section("points", map[string]any{"rate": "1000001/1"})},
		{"replicas", section("webhooks", map[string]any{"replicas": -1})},
		{"webPush.contact is empty", section("webPush", map[string]any{"replicas": 1})},
		{"contact", section("webPush", map[string]any{"contact": "shop@example.com"})},
		{"envFrom", section("envFrom", map[string]any{"secretRef": map[string]any{"name": "shop-otel"}})},
		{"extraArgs", section("worker", map[string]any{"extraArgs": "--batch=100"})},
		{"storePorts", section("networkPolicy", map[string]any{"storePorts": []any{}})},
		{"httpsPorts", section("networkPolicy", map[string]any{"httpsPorts": []any{70000}})},
		{"enabled", section("networkPolicy", map[string]any{"enabled": "no"})},
		{"interval", section("serviceMonitor", map[string]any{"interval": "15"})},
		{"pullPolicy", section("image", map[string]any{"pullPolicy": "Sometimes"})},
		{"repository", section("image", map[string]any{"repository": ""})},
	} {
		if _, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want an error with %q", c.values, err, c.want)
		}
	}
}

// part returns the manifests of a template, without those of other templates.
func part(t *testing.T, values map[string]any, template string) string {
	t.Helper()
	manifests, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return manifests["sluice/templates/"+template+".yaml"]
}

// Values become the arguments, variables and files that the commands expect.
func TestValuesReachContainers(t *testing.T) {
	for _, c := range []struct {
		values, template string
		has, lacks       []string
	}{
		{"everything", "backend", []string{
			`"--checkout=https://shop.example/pay?order={order}&sale={sale}"`,
			"- --edge-metrics=http://shop-sluice-backend-0.shop-sluice-backend:8081/metrics\n",
			"- --edge-metrics=http://shop-sluice-backend-2.shop-sluice-backend:8081/metrics\n",
			`"--token-keys=https://login.shop.example/jwks.json"`,
			`"--token-issuer=https://login.shop.example/"`, `"--token-audience=sluice: \"sale\""`,
			`secret: { name: "shop-db-app", items: [{ key: "uri", path: database-url }] }`,
			`secret: { name: "sluice", items: [{ key: "redis-url", path: redis-url }] }`,
			`secretKeyRef: { name: "sluice", key: token-secret, optional: true }`,
		}, []string{"SLUICE_TOKEN_SECRET_FILE"}},
		{"everything", "edge", []string{
			`"--token-issuer=https://login.shop.example/"`, "shop-sluice-backend-2.shop-sluice-backend:8080",
		}, []string{"replicas:", "SLUICE_TOKEN_SECRET_FILE", "secrets"}},
		{"least", "backend", []string{"SLUICE_TOKEN_SECRET_FILE", "path: token-secret"}, []string{"--token", "--checkout"}},
		{"least", "edge", []string{"SLUICE_TOKEN_SECRET_FILE", "path: token-secret"}, []string{
			"--token", "replicas:", "SLUICE_LIMIT_REDIS_URL",
		}},
		{"secrets of others", "edge", []string{
			"SLUICE_LIMIT_REDIS_URL", `secretKeyRef: { name: "shop-redis", key: "limit-redis-url" }`,
		}, nil},
		{"no autoscaling", "edge", []string{"replicas: 3"}, nil},
		{"no autoscaling", "worker", []string{"replicas: 1"}, nil},
		{"no autoscaling", "common", []string{"PodDisruptionBudget"}, []string{"HorizontalPodAutoscaler"}},
		{"no network policy", "networkpolicy", nil, []string{"kind"}},
		{"secrets of others", "worker", []string{`name: "shop-db-app"`, `name: "shop-redis", items: [{ key: "url"`}, nil},
		{"secrets of others", "backend", []string{
			`name: "shop-payment", key: "payment-secret"`,
			"name: SLUICE_ORDERS_REPLICA_URL\n              valueFrom: { secretKeyRef: { name: \"shop-db-replica\", key: \"uri\", optional",
		}, nil},
		{"everything", "points", []string{"- points", `"--points=3/200"`, "path: database-url"}, []string{"vapid"}},
		{"least", "points", nil, []string{"kind"}},
		{"everything", "webhooks", []string{"- webhooks", `"--allow-private=10.0.0.0/8"`, "path: redis-url"}, nil},
		{"least", "webhooks", nil, []string{"kind"}},
		{"everything", "web-push", []string{
			"- web-push", `"--web-push-contact=mailto:shop@example.com"`, `"--web-push-hold=1m"`,
			"SLUICE_VAPID_KEY_FILE, value: /run/secrets/sluice/vapid-key", `name: "sluice", items: [{ key: "vapid-key"`,
		}, nil},
		{"least", "web-push", nil, []string{"kind"}},
		{"least", "common", nil, []string{"sluice-points", "sluice-webhooks", "sluice-web-push"}},
		{"least", "networkpolicy", []string{
			"- ports: [{ port: admin, protocol: TCP }]\n      from:\n        - podSelector:\n            matchLabels:\n" +
				"              app.kubernetes.io/component: backend\n",
			`"app.kubernetes.io/component":"backend","app.kubernetes.io/instance":"shop","app.kubernetes.io/name":"sluice"}}}]` +
				"\n      ports: [{ port: admin, protocol: TCP }]\n",
		}, nil},
	} {
		text := part(t, cases[c.values], c.template)
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s of %q has no %s:\n%s", c.template, c.values, want, text)
			}
		}
		for _, not := range c.lacks {
			if strings.Contains(text, not) {
				t.Errorf("%s of %q has %s", c.template, c.values, not)
			}
		}
	}
}

// With tokenKeys, the secret volume of the edge holds the CA alone.
func TestValuesReachEveryContainer(t *testing.T) {
	manifests, err := render(t, cases["secrets of others"])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components {
		text := manifests["sluice/templates/"+name+".yaml"]
		for _, want := range []string{
			`configMap: { name: "shop-ca", items: [{ key: "root.pem", path: ca/ca.crt }] }`,
			`{ name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318" }`, `{ name: HTTPS_PROXY, value: "a: #b" }`,
			"{ name: SSL_CERT_DIR, value: /run/secrets/sluice/ca }",
			"envFrom:\n            - secretRef:\n                name: shop-otel\n",
			"{ name: secrets, mountPath: /run/secrets/sluice, readOnly: true }",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s:\n%s", name, want, text)
			}
		}
	}
}

// A drain of nodes leaves pods of every component.
func TestEveryComponentHasADisruptionBudget(t *testing.T) {
	text := part(t, everything, "common")
	for _, name := range components {
		budget := "kind: PodDisruptionBudget\nmetadata:\n  name: shop-sluice-" + name + "\n"
		if strings.Count(text, budget) != 1 {
			t.Errorf("%s has no PodDisruptionBudget:\n%s", name, text)
		}
	}
}

// The alerts and the dashboard select series by the jobs of prometheus.yml, not by the names of Services.
func TestServiceMonitorsSetTheJobsOfTheAlerts(t *testing.T) {
	text := part(t, everything, "servicemonitor")
	for _, name := range components {
		if n := strings.Count(text, "relabelings: [{ targetLabel: job, replacement: sluice-"+name+" }]"); n != 1 {
			t.Errorf("%d ServiceMonitors set the job of %s, want 1:\n%s", n, name, text)
		}
	}
	alerts, err := os.ReadFile("../../observe/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	jobs := regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(string(alerts), -1)
	for _, job := range jobs {
		if !strings.Contains(text, "replacement: "+job[1]+" }") {
			t.Errorf("no ServiceMonitor sets the job %s of an alert", job[1])
		}
	}
	if len(jobs) == 0 {
		t.Error("no alert selects a job")
	}
}

// A rate needs two samples in its range, also if a scrape fails: three intervals.
func TestScrapeIntervalFitsTheDashboard(t *testing.T) {
	dashboard, err := os.ReadFile("../../observe/grafana/dashboards/sluice.json")
	if err != nil {
		t.Fatal(err)
	}
	seconds := func(text string) int {
		n, err := strconv.Atoi(strings.TrimSuffix(text, "s"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	shortest := 3600
	for _, m := range regexp.MustCompile(`\[(\d+s)\]`).FindAllStringSubmatch(string(dashboard), -1) {
		shortest = min(shortest, seconds(m[1]))
	}
	text := part(t, map[string]any{
		"existingSecret": "sluice", "serviceMonitor": map[string]any{"enabled": true},
	}, "servicemonitor")
	interval := seconds(regexp.MustCompile(`interval: (\S+)`).FindStringSubmatch(text)[1])
	if 3*interval > shortest {
		t.Errorf("the default interval is %d s; the dashboard has rates over %d s", interval, shortest)
	}
}

func TestEgressOfEveryComponent(t *testing.T) {
	text := part(t, cases["secrets of others"], "networkpolicy")
	if n := strings.Count(text, "- port: 4318"); n != len(components) {
		t.Errorf("%d components may connect to port 4318, want %d:\n%s", n, len(components), text)
	}
	for policy := range strings.SplitSeq(text, "\n---\n") {
		name := regexp.MustCompile(`\n  name: shop-sluice-(\S+)`).FindStringSubmatch(policy)[1]
		want := name != "worker" && name != "points" // they connect to the stores only
		if got := strings.Contains(policy, "{ port: 8443, protocol: TCP }"); got != want {
			t.Errorf("%s may connect to web servers: %v", name, got)
		}
	}
}

// number returns the number that a pattern finds in a text, or 0.
func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Any process with a database may be the one that migrates its tables, and listens afterwards. An edge listens when it
// has fetched its token keys, for which it waits half a minute. A restart would begin again.
func TestStartupProbesOutlastTheStart(t *testing.T) {
	manifests, err := render(t, cases["secrets of others"])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components {
		text, least := manifests["sluice/templates/"+name+".yaml"], 600
		if name == "edge" {
			least = 60
		}
		const probe = `startupProbe: \{.*periodSeconds: `
		got := number(t, text, probe+`(\d+),`) * number(t, text, probe+`\d+, failureThreshold: (\d+) `)
		if got < least {
			t.Errorf("%s has %d s to start, want at least %d", name, got, least)
		}
	}
}

// A pod has as long to stop as a unit of the Debian package, after its preStop.
func TestPodsStopInTimeOfUnits(t *testing.T) {
	unit, err := os.ReadFile("../debian/units/hardening.conf")
	if err != nil {
		t.Fatal(err)
	}
	want := number(t, string(unit), `(?m)^TimeoutStopSec=(\d+)$`)
	manifests, err := render(t, cases["secrets of others"])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components {
		text := manifests["sluice/templates/"+name+".yaml"]
		grace := number(t, text, `terminationGracePeriodSeconds: (\d+)\n`)
		before := number(t, text, `preStop: \{ exec: \{ command: \[sleep, "(\d+)"\]`)
		if strings.Contains(text, "preStop") != (before > 0) || grace-before != want || want == 0 {
			t.Errorf("%s has %d s to stop, %d of them before SIGTERM; want %d after it", name, grace, before, want)
		}
	}
}

// Every pod is hardened, has probes and a grace period, and reads secrets as files.
func TestPodsAreHardened(t *testing.T) {
	manifests, err := render(t, map[string]any{
		"existingSecret": "sluice", "points": map[string]any{"replicas": 1}, "webhooks": map[string]any{"replicas": 1},
		"webPush": map[string]any{"replicas": 1, "contact": "https://shop.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components {
		text := manifests["sluice/templates/"+name+".yaml"]
		for _, want := range []string{
			"runAsNonRoot: true", "readOnlyRootFilesystem: true", "drop: [ALL]", "allowPrivilegeEscalation: false",
			"seccompProfile", "automountServiceAccountToken: false", "terminationGracePeriodSeconds", "readinessProbe",
			"livenessProbe", "startupProbe", "resources:", "/run/secrets/sluice",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
	if names := slices.Sorted(maps.Keys(manifests)); len(names) < 6 {
		t.Errorf("rendered %v", names)
	}
}
