// Package compose_test reads docker-compose.yml as docker compose does and checks durability, secrets, network
// access, and that every file and variable it names exists.
package compose_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
)

var secrets = map[string]string{
	"SLUICE_TOKEN_SECRET": "a secret of the test, of 32 bytes at least",
	"SLUICE_ADMIN_TOKEN":  "a token of the test",
	"POSTGRES_PASSWORD":   "apasswordofthetest",
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func details(t *testing.T, env map[string]string) types.ConfigDetails {
	t.Helper()
	dir := root(t)
	return types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "docker-compose.yml")}},
		Environment: maps.Clone(env), // the loader adds to it
	}
}

// project returns docker-compose.yml with all profiles.
func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(context.Background(), details(t, secrets), loader.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return p
}

// groups are the services that run a group of order events; each has a profile of its name.
var groups = []string{"points", "web-push", "webhooks"}

// Prometheus, Grafana and the groups of order events start only with their profiles.
func TestProfilesAddServices(t *testing.T) {
	always := []string{"backend-1", "backend-2", "edge", "limits", "postgres", "redis", "worker"}
	added := map[string][]string{"": nil, "observe": {"grafana", "prometheus"}}
	for _, group := range groups {
		added[group] = []string{group}
	}
	for profile, services := range added {
		p, err := loader.LoadWithContext(context.Background(), details(t, secrets), loader.WithProfiles([]string{profile}))
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Sorted(slices.Values(slices.Concat(always, services)))
		if got := p.ServiceNames(); !slices.Equal(got, want) {
			t.Errorf("services %v with the profile %q, want %v", got, profile, want)
		}
	}
}

// Prometheus scrapes services of this file at their ports and loads the shipped rules; Grafana loads the dashboard
// and queries that Prometheus.
func TestPrometheusScrapesExistingServices(t *testing.T) {
	p := project(t)
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
			Named   []struct {
				Names []string
				Port  string
			} `yaml:"dns_sd_configs"`
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "observe/prometheus/prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	for _, rules := range config.RuleFiles {
		read(t, "observe/prometheus/"+rules)
	}
	var scraped []string
	scrape := func(service, port string) {
		scraped = append(scraped, service)
		s, there := p.Services[service]
		listens := there && strings.Contains(strings.Join(s.Command, " ")+" ", " :"+port+" ")
		if service == "edge" {
			listens = strings.Contains(read(t, "nginx/runtime/status.conf"), "listen "+port+";")
		}
		if !listens {
			t.Errorf("no service listens at %s:%s", service, port)
		}
		shared := slices.ContainsFunc(slices.Collect(maps.Keys(s.Networks)),
			func(n string) bool { _, ok := p.Services["prometheus"].Networks[n]; return ok })
		if there && !shared {
			t.Errorf("prometheus cannot reach %s", service)
		}
	}
	for _, job := range config.ScrapeConfigs {
		if !strings.HasPrefix(job.JobName, "sluice-") {
			t.Errorf("no alert contains the job %s", job.JobName)
		}
		for _, group := range job.Static {
			for _, target := range group.Targets {
				service, port, _ := strings.Cut(target, ":")
				scrape(service, port)
			}
		}
		for _, group := range job.Named {
			for _, service := range group.Names {
				scrape(service, group.Port)
			}
		}
	}
	slices.Sort(scraped)
	want := slices.Sorted(slices.Values(append([]string{"backend-1", "backend-2", "edge", "worker"}, groups...)))
	if !slices.Equal(scraped, want) {
		t.Errorf("prometheus scrapes %v, want %v", scraped, want)
	}
	if !strings.Contains(read(t, "observe/grafana/provisioning/datasources/prometheus.yml"),
		"url: http://prometheus:9090\n") {
		t.Error("grafana queries another prometheus")
	}
	provider := read(t, "observe/grafana/provisioning/dashboards/sluice.yml")
	for _, v := range p.Services["grafana"].Volumes {
		if strings.HasSuffix(v.Source, "/dashboards") && !strings.Contains(provider, "path: "+v.Target+" ") {
			t.Errorf("grafana does not look for dashboards in %s", v.Target)
		}
	}
}

func TestServicesAreWatchedAndRestarted(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		if h := s.HealthCheck; h == nil || h.Disable || len(h.Test) < 2 || h.Interval == nil || h.Timeout == nil {
			t.Errorf("%s has no usable health check", name)
		}
		if s.Restart != types.RestartPolicyUnlessStopped {
			t.Errorf("%s has the restart policy %q", name, s.Restart)
		}
		for on, how := range s.DependsOn {
			if how.Condition != types.ServiceConditionHealthy {
				t.Errorf("%s waits until %s is %s, not until it is healthy", name, on, how.Condition)
			}
		}
		if !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges=true") {
			t.Errorf("%s keeps capabilities", name)
		}
	}
	for name, needs := range map[string][]string{
		"edge":      {"backend-1", "backend-2"},
		"backend-1": {"limits", "postgres", "redis"},
		"backend-2": {"limits", "postgres", "redis"},
		"worker":    {"postgres", "redis"},
		"points":    {"postgres", "redis"},
		"web-push":  {"postgres", "redis"},
		"webhooks":  {"postgres", "redis"},
	} {
		if got := p.Services[name].GetDependencies(); !slices.Equal(slices.Sorted(slices.Values(got)), needs) {
			t.Errorf("%s waits for %v, want %v", name, got, needs)
		}
	}
}

func TestImagesAreOfficialAndPinned(t *testing.T) {
	for name, s := range project(t).Services {
		if s.Build != nil {
			continue
		}
		checkImage(t, name, s.Image)
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM(?: --\S+)* (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		checkImage(t, "Dockerfile", from[1])
	}
}

func checkImage(t *testing.T, where, image string) {
	t.Helper()
	repository, tag, _ := strings.Cut(image, ":")
	if strings.Contains(repository, "/") &&
		!slices.Contains([]string{"openresty/openresty", "prom/prometheus", "grafana/grafana"}, repository) {
		t.Errorf("%s: %s is not an official image", where, image)
	}
	if !regexp.MustCompile(`^v?\d`).MatchString(tag) {
		t.Errorf("%s: %s is not pinned to a version", where, image)
	}
}

func TestSecretsHaveNoDefault(t *testing.T) {
	for name := range secrets {
		unset, empty := maps.Clone(secrets), maps.Clone(secrets)
		delete(unset, name)
		empty[name] = ""
		for what, env := range map[string]map[string]string{"unset": unset, "empty": empty} {
			_, err := loader.LoadWithContext(context.Background(), details(t, env))
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("with %s %s: error %v, want one that names it", name, what, err)
			}
		}
	}
	example := read(t, ".env.example")
	for name := range secrets {
		if !strings.Contains(example, "\n"+name+"=\n") {
			t.Errorf(".env.example should have an empty %s", name)
		}
	}
}

func TestExampleNamesEveryVariable(t *testing.T) {
	tree, err := loader.LoadModelWithContext(context.Background(), details(t, nil),
		func(o *loader.Options) { o.SkipInterpolation = true })
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for name := range template.ExtractVariables(tree, template.DefaultPattern) {
		used = append(used, name)
	}
	var named []string
	for _, m := range regexp.MustCompile(`(?m)^#?([A-Z0-9_]+)=`).FindAllStringSubmatch(read(t, ".env.example"), -1) {
		named = append(named, m[1])
	}
	slices.Sort(used)
	slices.Sort(named)
	if !slices.Equal(used, named) {
		t.Errorf("docker-compose.yml uses  %v\n.env.example names      %v", used, named)
	}
}

func TestStockRedisIsDurable(t *testing.T) {
	s := project(t).Services["redis"]
	command := strings.Join(s.Command, " ")
	for _, want := range []string{"--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"} {
		if !strings.Contains(command, want) {
			t.Errorf("redis runs without %s: %s", want, command)
		}
	}
	for name, target := range map[string]string{"redis": "/data", "postgres": "/var/lib/postgresql/data"} {
		if v := project(t).Services[name].Volumes; len(v) != 1 || v[0].Type != types.VolumeTypeVolume || v[0].Source == "" ||
			v[0].Target != target {
			t.Errorf("%s does not keep %s in a named volume: %v", name, target, v)
		}
	}
	for name, s := range project(t).Services {
		if url := s.Environment["SLUICE_LIMIT_REDIS_URL"]; url != nil && *url == *s.Environment["SLUICE_REDIS_URL"] {
			t.Errorf("%s counts requests in the Redis of the stock: refusals would write to it", name)
		}
	}
}

// Each backend keeps its journal in a volume of its own, which outlives the container.
func TestJournalsAreKeptApart(t *testing.T) {
	p, seen := project(t), map[string]string{}
	for _, name := range []string{"backend-1", "backend-2"} {
		s := p.Services[name]
		dir := s.Environment["SLUICE_JOURNAL"]
		if dir == nil || *dir == "" {
			t.Errorf("%s keeps no journal", name)
			continue
		}
		i := slices.IndexFunc(s.Volumes,
			func(v types.ServiceVolumeConfig) bool { return strings.HasPrefix(*dir, v.Target+"/") })
		if i < 0 || s.Volumes[i].Type != types.VolumeTypeVolume || s.Volumes[i].Source == "" || s.Volumes[i].ReadOnly {
			t.Errorf("%s does not keep %s in a named volume: %v", name, *dir, s.Volumes)
			continue
		}
		if other := seen[s.Volumes[i].Source]; other != "" {
			t.Errorf("%s shares its journal with %s", name, other)
		}
		seen[s.Volumes[i].Source] = name
		// A new volume belongs to root unless the image has the directory.
		if !strings.Contains(read(t, "Dockerfile"), "--chown=10001:10001 /out/data "+s.Volumes[i].Target+"\n") {
			t.Errorf("the image has no %s of its user", s.Volumes[i].Target)
		}
	}
}

// A file of token keys is mounted in every service that verifies tokens.
func TestTokenKeysAreMountedWhereTokensAreVerified(t *testing.T) {
	with := maps.Clone(secrets)
	with["SLUICE_TOKEN_KEYS"] = "./token-keys.json"
	for what, env := range map[string]map[string]string{"": secrets, "/run/secrets/token-keys": with} {
		p, err := loader.LoadWithContext(context.Background(), details(t, env))
		if err != nil {
			t.Fatal(err)
		}
		file := "/dev/null"
		if what != "" {
			file = filepath.Join(root(t), "token-keys.json")
		}
		if got := p.Secrets["token-keys"].File; got != file {
			t.Errorf("the keys come from %s, want %s", got, file)
		}
		for _, name := range []string{"edge", "backend-1", "backend-2"} {
			s := p.Services[name]
			if got := s.Environment["SLUICE_TOKEN_KEYS"]; got == nil || *got != what {
				t.Errorf("%s looks for keys in %v, want %q", name, got, what)
			}
			if len(s.Secrets) != 1 || s.Secrets[0].Source != "token-keys" {
				t.Errorf("%s is given the secrets %v", name, s.Secrets)
			}
		}
	}
}

// All services have the same number of shards: processes with different numbers do not start.
func TestAllServicesHaveTheSameShards(t *testing.T) {
	env := maps.Clone(secrets)
	env["SLUICE_SHARDS"] = "3"
	p, err := loader.LoadWithContext(context.Background(), details(t, env), loader.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"backend-1", "backend-2", "worker"}, groups...) {
		if got := p.Services[name].Environment["SLUICE_SHARDS"]; got == nil || *got != "3" {
			t.Errorf("%s: %v shards", name, got)
		}
	}
}

func TestOnlyTheEdgeIsPublic(t *testing.T) {
	p := project(t)
	inner := []string{"redis", "limits", "postgres", "worker", "points"}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			isAdmin := strings.HasPrefix(name, "backend-") && port.Target == 8081 && port.HostIP == "127.0.0.1"
			dashboard := name == "grafana" && port.HostIP == "127.0.0.1"
			if name != "edge" && !isAdmin && !dashboard {
				t.Errorf("%s publishes %s:%s->%d", name, port.HostIP, port.Published, port.Target)
			}
		}
		if _, ok := s.Networks["stores"]; ok && (name == "edge" || name == "grafana") {
			t.Errorf("%s can reach the stores", name)
		}
		if _, ok := s.Networks["front"]; ok && slices.Contains(inner, name) {
			t.Errorf("%s is on the edge's network", name)
		}
	}
	if !p.Networks["stores"].Internal {
		t.Error("the network of the stores has a route to the outside")
	}
}

func TestMountedPathsExist(t *testing.T) {
	mounts := 0
	for name, s := range project(t).Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			mounts++
			if _, err := os.Stat(v.Source); err != nil || !strings.HasPrefix(v.Source, root(t)+string(filepath.Separator)) {
				t.Errorf("%s mounts %s, which is not in the repository (%v)", name, v.Source, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s could write to %s", name, v.Source)
			}
		}
	}
	if mounts == 0 {
		t.Error("the edge mounts nothing: where is its configuration?")
	}
}

// The edge's upstreams are names and ports of this file, with fixed addresses.
func TestEdgeNamesTheBackends(t *testing.T) {
	p := project(t)
	found := regexp.MustCompile(`(?m)^\s*server (\S+?):(\d+)[ ;]`).
		FindAllStringSubmatch(read(t, "nginx/runtime/http.conf"), -1)
	if len(found) != 2 {
		t.Fatalf("nginx/runtime/http.conf names %d backends", len(found))
	}
	for _, m := range found {
		s, ok := p.Services[m[1]]
		if !ok || !strings.Contains(strings.Join(s.Command, " "), fmt.Sprintf("--listen :%s ", m[2])) {
			t.Errorf("nothing listens at %s:%s", m[1], m[2])
			continue
		}
		if net := s.Networks["front"]; net == nil || net.Ipv4Address == "" {
			t.Errorf("%s has no fixed address: nginx would lose it when the container is created again", m[1])
		}
	}
}
