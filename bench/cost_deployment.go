package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// costDeployment is a deployment with stores that write to disk, and a connection to its database.
type costDeployment struct {
	*deployment

	of      costCase
	sql     *pgx.Conn
	worker  *testenv.Program
	metrics string // address of the worker's
	buyers  int    // so far; each has a token of its own
}

// noRewrites are arguments of a redis-server that only appends to its log, so that its growth can be measured.
var noRewrites = []string{"--auto-aof-rewrite-percentage", "0"}

// newCostDeployment starts the parts as in production: Redis with its log, a backend with its journal, an edge.
// redisArgs are further arguments of Redis.
func newCostDeployment(s *stage, cfg settings, c costCase, bin string, redisArgs ...string) *costDeployment {
	redisArgs = append([]string{"--appendonly", "yes", "--appendfsync", c.fsync}, redisArgs...)
	listen, sockets := testenv.FreeAddress(s), s.TempDir()
	if cfg.sockets {
		listen = "unix:" + filepath.Join(sockets, "backend.sock")
		redisArgs = append(redisArgs, "--unixsocket", filepath.Join(sockets, "redis.sock"))
	}
	shop := newShopOf(s, bin, redisArgs...)
	if cfg.sockets {
		shop.env = sluiceEnv(testenv.SocketURL(filepath.Join(sockets, "redis.sock")), shop.sql.SocketURL())
	}
	h := &deployment{shop: shop, cfg: cfg, wrk: s.wrk(), client: shop.redis.Client()}
	h.wrk.connections = c.connections
	h.at = h.backendAt(listen, "--journal", s.TempDir())
	metrics := testenv.FreeAddress(s)
	worker := s.start(h.env, bin, "worker", "--metrics", metrics)
	if c.edge == "gateway" {
		h.edge = s.gateway(bin, h.env, h.at.addr, "")
	} else {
		h.edge = s.edge(bin, h.env, h.at.addr)
	}
	h.parts = newMeter(costParts[0], h.edge.pid, costParts[1], h.at.pid, costParts[2], redisPID(s, h.client),
		costParts[3], worker.Pid(), costParts[4], shop.sql.Pid())
	sql, err := pgx.Connect(context.Background(), shop.sql.URL)
	s.check(err)
	s.Cleanup(func() { _ = sql.Close(context.Background()) })
	return &costDeployment{deployment: h, of: c, sql: sql, worker: worker, metrics: metrics}
}

func (h *costDeployment) side(name string) *costSide {
	side := &costSide{name: name}
	switch h.of.of {
	case "order":
		side.run = h.orders()
	case "status":
		side.run = h.statuses
	case "page":
		side.run = h.pages
	case "refusal":
		side.run = h.refusals
	}
	return side
}

const (
	// repeatedBuyers fit the cache of verified tokens of an nginx worker (lua/edge/sluice/token/cache.lua).
	repeatedBuyers = 9_000
	statusOrders   = 20_000
)

// orders buys with accepted purchases only.
func (h *costDeployment) orders() func(context.Context) (costSample, error) {
	rate := 15_000.0
	return func(ctx context.Context) (costSample, error) {
		for {
			got, err := h.buy(ctx, int(rate*h.cfg.seconds.Seconds()*3/2)+10*h.wrk.connections)
			if !errors.Is(err, errTooFew) {
				rate = max(got.perSecond, 1000)
				return got, err
			}
			rate *= 1.5
		}
	}
}

// buy prepares n purchases, sends them, and measures those that are sent until their orders are rows.
func (h *costDeployment) buy(ctx context.Context, n int) (costSample, error) {
	requests, err := h.purchases(ctx, n)
	if err != nil {
		return costSample{}, err
	}
	defer os.Remove(requests)
	sizes, err := h.sizes(ctx)
	if err != nil {
		return costSample{}, err
	}
	rows, err := h.rows(ctx)
	if err != nil {
		return costSample{}, err
	}
	runs, err := h.runs(ctx)
	if err != nil {
		return costSample{}, err
	}
	before := h.parts.read()
	profiled := make(chan error, 1)
	go func() {
		if h.cfg.profile == "" {
			profiled <- nil
			return
		}
		profiled <- addProfile(ctx, h.at.admin, h.cfg.profile, h.cfg.seconds)
	}()
	got, loadErr := h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
	if err := <-profiled; err != nil {
		return costSample{}, err
	}
	if loadErr != nil && !errors.Is(loadErr, errTooFew) {
		return costSample{}, loadErr
	}
	written, err := h.written(ctx)
	if err != nil || loadErr != nil {
		return costSample{}, errors.Join(loadErr, err)
	}
	c := newCostSample(got.perSecond, before, h.parts.read(), written-rows)
	if got.refused > 0 || written-rows < got.answers {
		return c, fmt.Errorf("%d answers, %d of them refusals, and %d orders", got.answers, got.refused, written-rows)
	}
	after, err := h.sizes(ctx)
	for i := range after {
		c.sizes = append(c.sizes, (after[i]-sizes[i])/float64(written-rows))
	}
	ended, runsErr := h.runs(ctx)
	for i := range ended {
		c.shared = append(c.shared, float64(written-rows)/(ended[i]-runs[i]))
	}
	return c, errors.Join(err, runsErr)
}

// runs returns how often the admission script has accepted orders, and how many transactions the worker has committed.
func (h *costDeployment) runs(ctx context.Context) ([]float64, error) {
	calls, _, err := commandStats(ctx, h.client)
	if err != nil {
		return nil, err
	}
	runs := []float64{calls["decrby"], 0} // of the scripts that run here, only this one subtracts units
	return runs, metrics(ctx, h.metrics, func(name string, value float64) {
		if name == "sluice_worker_batches_total" {
			runs[1] = value
		}
	})
}

// purchases writes n purchases and creates their sales. A buyer with a repeated token buys in one sale after another.
func (h *costDeployment) purchases(ctx context.Context, n int) (path string, err error) {
	each, first := n, h.buyers
	if h.of.tokens == "repeated" {
		each = repeatedBuyers
	} else {
		h.buyers += n
	}
	sales := h.sales
	for range (n + each - 1) / each {
		if err := h.createSale(ctx, h.at, saleID+strconv.Itoa(h.sales), each, "-1s"); err != nil {
			return "", err
		}
		h.sales++
	}
	path = filepath.Join(h.wrk.dir, "requests")
	return path, writeRequests(path, n, func(b []byte, i int) []byte {
		return buyRequest(b, saleID+strconv.Itoa(sales+i/each), "", first+i%each)
	})
}

// rows returns the number of orders that are rows.
func (h *costDeployment) rows(ctx context.Context) (n int64, err error) {
	err = h.sql.QueryRow(ctx, "SELECT coalesce(sum(sold), 0)::bigint FROM sales").Scan(&n)
	return n, err
}

// written waits until every accepted order is a row, and returns the number of rows.
func (h *costDeployment) written(ctx context.Context) (int64, error) {
	for deadline := time.Now().Add(drainLimit); ; time.Sleep(20 * time.Millisecond) {
		counts, err := counters(ctx, h.at.admin, "sluice_api_purchases_total{outcome=")
		if err != nil {
			return 0, err
		}
		rows, err := h.rows(ctx)
		if err != nil || rows == counts["accepted"] {
			return rows, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d rows after %d accepted orders", rows, counts["accepted"])
		}
	}
}

// sizes returns the values that costSizes names, in bytes.
func (h *costDeployment) sizes(ctx context.Context) ([]float64, error) {
	logged, err := redisNumber(ctx, h.client, "persistence", "aof_current_size")
	if err != nil {
		return nil, err
	}
	memory, err := redisNumber(ctx, h.client, "memory", "used_memory")
	if err != nil {
		return nil, err
	}
	var wal, database int64
	err = h.sql.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint, pg_database_size(current_database())").
		Scan(&wal, &database)
	return []float64{logged, memory, float64(wal), float64(database)}, err
}

// answers measures requests that may be sent again. refused: each of them must be refused, otherwise none.
func (h *costDeployment) answers(ctx context.Context, requests string, refused bool) (costSample, error) {
	before := h.parts.read()
	got, err := h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
	if err != nil && !errors.Is(err, errTooFew) {
		return costSample{}, err
	}
	if want := map[bool]int64{true: got.answers}[refused]; got.refused != want {
		return costSample{}, fmt.Errorf("%d of %d answers are refusals, want %d", got.refused, got.answers, want)
	}
	return newCostSample(got.perSecond, before, h.parts.read(), got.answers), nil
}

// statuses queries orders that are rows, each by its buyer.
func (h *costDeployment) statuses(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "statuses")
	if h.sales == 0 {
		bought, err := h.purchases(ctx, statusOrders+10*h.wrk.connections)
		if err != nil {
			return costSample{}, err
		}
		if _, err := h.wrk.load(ctx, h.edge.addr, bought, h.cfg.seconds, h.parts); err != nil && !errors.Is(err, errTooFew) {
			return costSample{}, err
		}
		if _, err := h.written(ctx); err != nil {
			return costSample{}, err
		}
		if err := h.writeStatuses(ctx, requests); err != nil {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, false)
}

func (h *costDeployment) writeStatuses(ctx context.Context, path string) error {
	rows, err := h.sql.Query(ctx, "SELECT id, buyer FROM orders ORDER BY buyer LIMIT $1", statusOrders)
	if err != nil {
		return err
	}
	type order struct {
		ID    int64
		Buyer string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[order])
	if err != nil {
		return err
	}
	return writeRequests(path, len(all), func(b []byte, i int) []byte {
		raw, err := key.Sign(all[i].Buyer, time.Hour)
		if err != nil {
			panic(err) // HS256 cannot fail
		}
		b = fmt.Appendf(b, "GET /v1/orders/%d HTTP/1.1\r\nHost: bench\r\nX-Forwarded-For: %s\r\nAuthorization: Bearer ",
			all[i].ID, addressOf(i))
		return append(append(b, raw...), "\r\n\r\n"...)
	})
}

// pages requests the page of a sale.
func (h *costDeployment) pages(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "pages")
	if h.sales == 0 {
		h.sales++
		err := errors.Join(h.createSale(ctx, h.at, saleID, 1000, "1h"), writeRequests(requests, 100_000, opening))
		if err != nil {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, false)
}

// refusals buys in a sale that is sold out.
func (h *costDeployment) refusals(ctx context.Context) (costSample, error) {
	requests := filepath.Join(h.wrk.dir, "refusals")
	if h.sales == 0 {
		h.sales++
		err := errors.Join(h.createSale(ctx, h.at, saleID, 1, "-1s"),
			writeRequests(requests, 100_000, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", i) }))
		if err != nil {
			return costSample{}, err
		}
		// One of these purchases is accepted.
		if _, err := h.wrk.load(ctx, h.edge.addr, requests, time.Second, h.parts); err != nil && !errors.Is(err, errTooFew) {
			return costSample{}, err
		}
	}
	return h.answers(ctx, requests, true)
}
