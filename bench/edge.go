package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// edge compares sluice as a whole (nginx with every limit, one backend, Redis, a worker that writes to PostgreSQL)
// with the same nginx as a plain proxy in front of a hello handler. It runs two loads: a storm, in which one request
// in 200 gets a unit, and one in which every request does.
func edge(s *stage, cfg settings) contest {
	h := newDeployment(s, cfg)
	const storm, all, plain = "sluice, a storm", "sluice, all accepted", "nginx proxy + Fiber hello"
	return contest{
		name: "edge", unit: "answers",
		contestants: []contestant{
			{storm, h.measure(200)},
			{plain, h.proxied()},
			{all, h.measure(1)},
		},
		ratios: []ratio{
			{"edge, storm", storm, plain, 0.65, 0.8},
			{"edge, every request accepted", all, plain, 0, 0},
		},
	}
}

// shop holds the stores, and the program that uses them.
type shop struct {
	stage *stage
	bin   string
	env   []string
	redis *testenv.Redis
	sql   *testenv.Postgres
}

// backend is a running backend: the addresses of its API and its admin API.
type backend struct {
	server
	admin string
}

func newShop(s *stage) shop { return newShopOf(s, s.build()) }

// newShopOf is newShop with a built program, and options for Redis.
func newShopOf(s *stage, bin string, redisArgs ...string) shop {
	h := shop{stage: s, bin: bin, redis: testenv.StartRedis(s, redisArgs...), sql: testenv.StartPostgres(s)}
	h.env = sluiceEnv(h.redis.URL, h.sql.URL)
	return h
}

// backend starts one more, and returns when it has verified Redis.
func (h shop) backend(more ...string) backend {
	return h.backendAt(testenv.FreeAddress(h.stage), more...)
}

// backendAt starts a backend that listens on host:port or unix:/path.
func (h shop) backendAt(listen string, more ...string) backend {
	admin := testenv.FreeAddress(h.stage)
	args := append([]string{"backend", "--listen", listen, "--admin", admin}, more...)
	at := h.stage.serve(listen, h.env, h.bin, args...)
	testenv.Eventually(h.stage, 30*time.Second, "a backend is ready", func() bool {
		_, err := fetch(context.Background(), "http://"+admin+"/readyz", secret)
		return err == nil
	})
	return backend{at, admin}
}

// sluice runs one of the program's commands against the admin API of a backend.
func (h shop) sluice(ctx context.Context, at backend, args ...string) error {
	cmd := exec.CommandContext(ctx, h.bin, append(args, "--server", "http://"+at.admin)...)
	cmd.Env, cmd.Dir = append(os.Environ(), h.env...), os.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sluice %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (h shop) createSale(ctx context.Context, at backend, id string, stock int, opens string) error {
	return h.sluice(ctx, at, "sale", "create", "--id", id, "--title", "Bench", "--stock", strconv.Itoa(stock),
		"--price", "99.90EUR", "--opens", opens)
}

// deployment is a shop with an edge, one backend and a worker.
type deployment struct {
	shop

	cfg    settings
	wrk    *wrk
	client redisconn.Client
	at     backend
	edge   server
	status string // address of the edge's metrics
	parts  *meter
	sales  int
	most   int64 // answers that the edge can have counted
}

const edgeWorkers = "2"

func newDeployment(s *stage, cfg settings) *deployment {
	h := &deployment{shop: newShop(s), cfg: cfg, wrk: s.wrk(), status: testenv.FreeAddress(s)}
	h.client = h.redis.Client()
	h.at = h.backend()
	worker := s.start(h.env, h.bin, "worker")
	h.edge = s.edge(h.bin, h.env, h.at.addr, "--metrics", h.status)
	h.parts = newMeter("nginx", h.edge.pid, "backend", h.at.pid, "redis", redisPID(s, h.client), "worker", worker.Pid())
	return h
}

// edge starts nginx as sluice runs it, with the policy of the load tests: the shipped one, which also trusts
// X-Forwarded-For from this machine.
func (s *stage) edge(bin string, env []string, upstream string, more ...string) server {
	addr := testenv.FreeAddress(s)
	return s.serve(addr, env, bin, append([]string{
		"edge", "--listen", addr, "--upstream", upstreamAt(upstream), "--workers", edgeWorkers,
		"--nginx", testenv.Find(s, "nginx", "nginx-light"), "--policy", s.loadPolicy(),
		"--prefix", filepath.Join(s.TempDir(), "edge"),
	}, more...)...)
}

// upstreamAt returns the value of --upstream for a backend that listens on host:port or unix:/path.
func upstreamAt(addr string) string {
	if unixsocket.IsAddress(addr) {
		return addr
	}
	return "http://" + addr
}

func (s *stage) loadPolicy() string { return filepath.Join(s.root(), "loadtest", "policy.lua") }

// measure sells from a sale with a unit for one request in oneIn.
func (h *deployment) measure(oneIn int) measurement {
	id := ""
	return h.wrk.fresh(20_000, h.cfg,
		func(_ context.Context, path string, n int) error {
			h.sales++
			id = saleID + strconv.Itoa(h.sales)
			return writeRequests(path, n, func(b []byte, i int) []byte { return buyRequest(b, id, "", i) })
		},
		func(ctx context.Context, requests string, n int) (float64, error) {
			stock := max(1, n*2/3/oneIn) // two thirds of the requests are expected to be sent
			if oneIn == 1 {
				stock = n + connections
			}
			perSecond, err := h.sell(ctx, id, requests, stock, oneIn == 1)
			_ = os.Remove(requests)
			return perSecond, err
		})
}

// sell puts a load on a sale, and then checks that it sold exactly. forAll: the units are enough for every request.
func (h *deployment) sell(ctx context.Context, id, requests string, stock int, forAll bool) (float64, error) {
	if err := h.createSale(ctx, h.at, id, stock, "-1s"); err != nil {
		return 0, err
	}
	before, err := h.judged(ctx)
	if err != nil {
		return 0, err
	}
	got, err := h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
	h.most += got.answers + connections
	if err != nil {
		return got.perSecond, err
	}
	backlog, err := h.settle(ctx)
	if err != nil {
		return 0, err
	}
	now, err := h.judgedAfter(ctx, before.sum()+got.answers)
	if err != nil {
		return 0, err
	}
	accepted, soldOut, repeated := now.accepted-before.accepted, now.soldOut-before.soldOut, now.repeated-before.repeated
	fmt.Fprintf(os.Stderr, "  accepted %d, sold out %d (%d by the edge alone), queued at the end %d\n",
		accepted, soldOut+repeated, repeated, backlog)
	switch {
	case now.sum() < before.sum()+got.answers || now.sum() > h.most:
		return 0, fmt.Errorf("%d answers, but %d accepted and %d sold out", got.answers, accepted, soldOut+repeated)
	case !forAll && got.answers > int64(stock) && accepted != int64(stock), forAll && soldOut > 0:
		return 0, fmt.Errorf("%d units: %d accepted, %d sold out", stock, accepted, soldOut)
	}
	return got.perSecond, h.sluice(ctx, h.at, "sale", "audit", id)
}

// settle waits until every accepted order is a row, so that the next contestant starts on an idle machine. It returns
// the backlog at its start.
func (h *deployment) settle(ctx context.Context) (backlog int64, err error) {
	shard := keyspace.Shard(0)
	for first := true; ; first = false {
		ready, err := h.client.LLen(ctx, shard.Ready()).Result()
		if err != nil {
			return 0, err
		}
		leases, err := h.client.ZCard(ctx, shard.Leases()).Result()
		if err != nil {
			return 0, err
		}
		if first {
			backlog = ready
		}
		if ready+leases == 0 {
			return backlog, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// outcomes counts purchases by outcome: decided by the backend, or repeated by the edge from its cache. The edge may
// count some of the load before late; it repeats no refusal of a sale that the backend has not refused.
type outcomes struct{ accepted, soldOut, repeated int64 }

func (o outcomes) sum() int64 { return o.accepted + o.soldOut + o.repeated }

// judged reads the outcomes so far from the metrics of the edge and the backend.
func (h *deployment) judged(ctx context.Context) (outcomes, error) {
	backend, err := counters(ctx, h.at.admin, "sluice_api_purchases_total{outcome=")
	if err != nil {
		return outcomes{}, err
	}
	edge, err := counters(ctx, h.status, "sluice_edge_cached_refusals_total{state=")
	return outcomes{backend["accepted"], backend["sold_out"], edge["sold_out"]}, err
}

// judgedAfter returns the outcomes once there are n or more. The edge's workers publish their counts every second, and
// later on a busy machine. If some were lost, it returns the outcomes after a minute.
func (h *deployment) judgedAfter(ctx context.Context, n int64) (outcomes, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now, err := h.judged(ctx)
		if err != nil || now.sum() >= n || time.Now().After(deadline) {
			return now, err
		}
	}
}

// counters reads the counters with the given prefix, keyed by the value of their single label.
func counters(ctx context.Context, addr, prefix string) (map[string]int64, error) {
	counts := map[string]int64{}
	return counts, metrics(ctx, addr, func(name string, value float64) {
		if label, found := strings.CutPrefix(name, prefix+`"`); found {
			counts[strings.TrimSuffix(label, `"}`)] = int64(value)
		}
	})
}

// metrics calls each with the metrics of a program, whose names include their labels.
func metrics(ctx context.Context, addr string, each func(name string, value float64)) error {
	text, err := fetch(ctx, "http://"+addr+"/metrics", secret)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil { // comments have no number
			each(name, n)
		}
	}
	return lines.Err()
}

// fetch returns the body that a URL answers with 200. An empty token sends no Authorization header.
func fetch(ctx context.Context, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// plainConf is an nginx that only serves: nothing is limited, verified, counted or logged. Its values are the workers
// and the content of the block http.
const plainConf = `worker_processes %s;
daemon off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
%s
}
`

// plainNginx starts an nginx in dir with plainConf. http has %s in place of its address.
func (s *stage) plainNginx(dir, http string) server {
	addr := testenv.FreeAddress(s)
	return s.nginx(addr, dir, fmt.Sprintf(plainConf, edgeWorkers, fmt.Sprintf(http, addr)))
}

// plainHello starts an nginx that only forwards, and its backend, to which connections are kept.
func (s *stage) plainHello() (proxy, hello server) {
	hello = s.child(childConfig{what: "hello"})
	return s.plainNginx(s.TempDir(), `    keepalive_requests 10000;
    upstream hello {
        server `+hello.addr+`;
        keepalive 128;
        keepalive_requests 100000;
    }
    server {
        listen %s backlog=4096;
        location / {
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass http://hello;
        }
    }`), hello
}

// proxied returns the measurement of the plain proxy with the requests that sluice gets.
func (h *deployment) proxied() measurement {
	proxy, hello := h.stage.plainHello()
	requests := filepath.Join(h.wrk.dir, "hello")
	h.stage.check(writeRequests(requests, 50_000, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", i) }))
	return h.wrk.steady(proxy.addr, requests, h.cfg, newMeter("nginx", proxy.pid, "backend", hello.pid))
}
