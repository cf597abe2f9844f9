package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/internal/token"
	"sluice/test/testenv"
)

// edge compares sluice as a whole (nginx with every limit, one backend, Redis, a worker that writes to PostgreSQL)
// with the same nginx as a plain proxy in front of a hello handler. It runs two loads: a storm, in which one request
// in 200 gets a unit, and one in which every request does.
func edge(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	h, err := newHouse(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	proxied, err := h.proxied()
	if err != nil {
		return nil, err
	}
	const storm, all, plain = "sluice, a storm", "sluice, all accepted", "nginx proxy + Fiber hello"
	c := contest{
		name: "edge", unit: "answers",
		contestants: []contestant{
			{storm, h.measure(200)},
			{plain, proxied},
			{all, h.measure(1)},
		},
		ratios: []ratio{
			{"edge, storm", storm, plain, 0.65, 0.8},
			{"edge, every request accepted", all, plain, 0, 0},
		},
	}
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// house is sluice with all its parts.
type house struct {
	stage   *stage
	cfg     settings
	bin     string
	env     []string
	edge    string // addresses
	status  string
	backend string
	admin   string
	client  *redis.Client
	wrk     *wrk
	key     *token.Key
	parts   meter
	dir     string
	nginx   string
	sales   int
	rate    float64 // answers a second of the last measurement, to size the next one
}

const edgeWorkers = "2"

func newHouse(ctx context.Context, s *stage, cfg settings) (*house, error) {
	h := &house{
		stage:   s,
		cfg:     cfg,
		edge:    s.address(),
		status:  s.address(),
		backend: s.address(),
		admin:   s.address(),
		dir:     s.TempDir(),
		nginx:   testenv.Find(s, "nginx", "nginx-light"),
		rate:    20_000,
	}
	var err error
	if h.wrk, err = s.wrk(); err != nil {
		return nil, err
	}
	if h.key, err = newKey(); err != nil {
		return nil, err
	}
	if h.bin, err = s.build(ctx); err != nil {
		return nil, err
	}
	where, err := root(ctx)
	if err != nil {
		return nil, err
	}
	server, database := testenv.StartRedis(s), testenv.StartPostgres(s)
	h.client = server.Client()
	h.env = []string{
		"SLUICE_TOKEN_SECRET=" + secret,
		"SLUICE_ADMIN_TOKEN=" + secret,
		"SLUICE_REDIS_URL=" + server.URL,
		"SLUICE_DATABASE_URL=" + database.URL,
		"SLUICE_USER_RATE=" + userRate,
	}
	b, err := s.start(where, h.env, h.bin, "backend", "--listen", h.backend, "--admin", h.admin)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.await(h.backend), b.await(h.admin)); err != nil {
		return nil, err
	}
	w, err := s.start(where, h.env, h.bin, "worker")
	if err != nil {
		return nil, err
	}
	e, err := s.start(
		where,
		h.env,
		h.bin,
		"edge",
		"--listen",
		h.edge,
		"--upstream",
		"http://"+h.backend,
		"--workers",
		edgeWorkers,
		"--nginx",
		h.nginx,
		"--metrics",
		h.status,
		"--policy",
		filepath.Join(where, "loadtest", "policy.lua"),
		"--prefix",
		filepath.Join(s.TempDir(), "edge"),
	)
	if err != nil {
		return nil, err
	}
	if err := e.await(h.edge); err != nil {
		return nil, err
	}
	pid, err := redisPID(ctx, h.client)
	if err != nil {
		return nil, err
	}
	h.parts.add("nginx", e.cmd.Process.Pid)
	h.parts.add("backend", b.cmd.Process.Pid)
	h.parts.add("redis", pid)
	h.parts.add("worker", w.cmd.Process.Pid)
	return h, nil
}

// measure sells from a sale with a unit for one request in oneIn.
func (h *house) measure(oneIn int) func(context.Context) (float64, error) {
	rate := h.rate
	return func(ctx context.Context) (float64, error) {
		for {
			perSecond, err := h.sell(ctx, int(rate*h.cfg.seconds.Seconds()*3/2)+10*connections, oneIn)
			if !errors.Is(err, errTooFew) {
				rate = perSecond
				return perSecond, err
			}
			rate *= 1.5
		}
	}
}

// sell prepares n requests, expects two thirds of them to be sent, and checks afterwards that the sale was exact.
func (h *house) sell(ctx context.Context, n, oneIn int) (float64, error) {
	h.sales++
	id := saleID + strconv.Itoa(h.sales)
	stock := max(1, n*2/3/oneIn)
	if oneIn == 1 {
		stock = n + connections
	}
	requests := filepath.Join(h.dir, id)
	if err := writeRequests(requests, n, func(b []byte, i int) []byte { return h.request(b, id, i) }); err != nil {
		return 0, err
	}
	defer os.Remove(requests)
	if err := h.sluice(
		ctx,
		"sale",
		"create",
		"--id",
		id,
		"--title",
		"Bench",
		"--stock",
		strconv.Itoa(stock),
		"--price",
		"99.90EUR",
		"--opens",
		"-1s",
	); err != nil {
		return 0, err
	}
	before, err := h.judged(ctx)
	if err != nil {
		return 0, err
	}
	spent := h.parts.read()
	got, err := h.wrk.load(ctx, h.edge, requests, h.cfg.seconds)
	if err != nil {
		return got.perSecond, err
	}
	costs := h.parts.each(spent, got.answers)
	backlog, err := h.settle(ctx)
	if err != nil {
		return 0, err
	}
	sum, err := h.judgedSince(ctx, before, got.answers)
	if err != nil {
		return 0, err
	}
	accepted, soldOut := sum.accepted, sum.soldOut+sum.repeated
	fmt.Fprintf(
		os.Stderr,
		"  each answer: %s  p50 %v  p99 %v; accepted %d, sold out %d (by the edge alone %d), queued at the end %d\n",
		costs,
		got.p50.Round(10*time.Microsecond),
		got.p99.Round(10*time.Microsecond),
		accepted,
		soldOut,
		sum.repeated,
		backlog,
	)
	switch {
	case accepted+soldOut < got.answers || accepted+soldOut > got.answers+connections:
		return 0, fmt.Errorf("%d answers, but %d accepted and %d sold out", got.answers, accepted, soldOut)
	case oneIn > 1 && got.answers > int64(stock) && accepted != int64(stock), oneIn == 1 && soldOut > 0:
		return 0, fmt.Errorf("%d units: %d accepted, %d sold out", stock, accepted, soldOut)
	}
	return got.perSecond, h.sluice(ctx, "sale", "audit", id)
}

// request is what a browser sends, from an address of its own behind a proxy that the policy trusts.
func (h *house) request(b []byte, id string, i int) []byte {
	buyer := buyerName(i)
	raw, err := h.key.Sign(buyer, time.Hour)
	if err != nil {
		panic(err) // HS256 cannot fail
	}
	b = fmt.Appendf(b, "POST /v1/sales/%s/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n", id)
	b = fmt.Appendf(b, "X-Forwarded-For: 10.%d.%d.%d\r\nAuthorization: Bearer ", byte(i>>16), byte(i>>8), byte(i))
	return append(append(b, raw...), "\r\n\r\n"...)
}

// sluice runs one of the program's commands.
func (h *house) sluice(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, h.bin, append(args, "--server", "http://"+h.admin)...)
	cmd.Env = append(os.Environ(), h.env...)
	cmd.Dir = h.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sluice %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// settle waits until every accepted order is a row and returns the backlog at its start. The next contestant then
// starts on an idle machine.
func (h *house) settle(ctx context.Context) (backlog int64, err error) {
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
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// outcomes counts purchases by outcome: decided by the backend, or repeated by the edge from its cache.
type outcomes struct{ accepted, soldOut, repeated int64 }

// judged reads the outcomes so far from the metrics of both.
func (h *house) judged(ctx context.Context) (outcomes, error) {
	backend, err := counters(ctx, h.admin, "sluice_api_purchases_total{outcome=")
	if err != nil {
		return outcomes{}, err
	}
	edge, err := counters(ctx, h.status, "sluice_edge_cached_refusals_total{state=")
	return outcomes{backend["accepted"], backend["sold_out"], edge["sold_out"]}, err
}

// judgedSince waits until every answer is counted: the edge's workers hand over their counts every second.
func (h *house) judgedSince(ctx context.Context, before outcomes, answers int64) (outcomes, error) {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, err := h.judged(ctx)
		if err != nil {
			return now, err
		}
		since := outcomes{now.accepted - before.accepted, now.soldOut - before.soldOut, now.repeated - before.repeated}
		if since.accepted+since.soldOut+since.repeated >= answers || time.Now().After(deadline) {
			return since, nil
		}
	}
}

// counters reads the counters with the given prefix, keyed by the value of their single label.
func counters(ctx context.Context, addr, prefix string) (map[string]int64, error) {
	text, err := fetch(ctx, "http://"+addr+"/metrics", secret)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		rest, found := strings.CutPrefix(lines.Text(), prefix+`"`)
		name, value, cut := strings.Cut(rest, `"} `)
		if !found || !cut {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, err
		}
		counts[name] = int64(n)
	}
	return counts, lines.Err()
}
