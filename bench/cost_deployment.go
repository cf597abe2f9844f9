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
	return &costDeployment{deployment: h, of: c, sql: s.connect(shop.sql.URL), worker: worker, metrics: metrics}
}

func (h *costDeployment) side(name string) *costSide {
	side := &costSide{name: name}
	switch h.of.of {
	case "order":
		side.run = h.orders()
	case "status":
		side.run = h.answers(h.prepareStatuses, false)
	case "page":
		side.run = h.answers(h.preparePages, false)
	case "refusal":
		side.run = h.answers(h.prepareRefusals, true)
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
	var got costSample
	sell := func(ctx context.Context, requests string, _ int) (perSecond float64, err error) {
		got, err = h.buy(ctx, requests)
		return max(got.perSecond, 1000), err
	}
	run := h.wrk.fresh(15_000, h.cfg, h.purchases, sell)
	return func(ctx context.Context) (costSample, error) {
		_, err := run(ctx)
		return got, err
	}
}

// buy sends purchases, and measures those that are sent until their orders are rows.
func (h *costDeployment) buy(ctx context.Context, requests string) (costSample, error) {
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
	var got outcome
	loadErr := profiled(ctx, h.at.admin, h.cfg.profile, h.cfg.seconds, func() (err error) {
		got, err = h.wrk.load(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
		return err
	})
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
		c.figures = append(c.figures, (after[i]-sizes[i])/float64(written-rows))
	}
	ended, runsErr := h.runs(ctx)
	for i := range ended {
		c.figures = append(c.figures, float64(written-rows)/(ended[i]-runs[i]))
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
func (h *costDeployment) purchases(ctx context.Context, path string, n int) error {
	each, first := n, h.buyers
	if h.of.tokens == "repeated" {
		each = repeatedBuyers
	} else {
		h.buyers += n
	}
	sales := h.sales
	for range (n + each - 1) / each {
		if err := h.createSale(ctx, h.at, saleID+strconv.Itoa(h.sales), each, "-1s"); err != nil {
			return err
		}
		h.sales++
	}
	return writeRequests(path, n, func(b []byte, i int) []byte {
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

// sizes returns the first four of costFigures, of all orders.
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

// answers measures requests that may be sent again, which prepare writes the first time. refused: each of them must be
// refused, otherwise none.
func (h *costDeployment) answers(
	prepare func(ctx context.Context, path string) error, refused bool,
) func(context.Context) (costSample, error) {
	requests, prepared := filepath.Join(h.wrk.dir, "repeated"), false
	return func(ctx context.Context) (costSample, error) {
		if !prepared {
			if err := prepare(ctx, requests); err != nil {
				return costSample{}, err
			}
			prepared = true
		}
		before := h.parts.read()
		got, err := h.wrk.repeat(ctx, h.edge.addr, requests, h.cfg.seconds, h.parts)
		if want := map[bool]int64{true: got.answers}[refused]; err == nil && got.refused != want {
			err = fmt.Errorf("%d of %d answers are refusals, want %d", got.refused, got.answers, want)
		}
		return newCostSample(got.perSecond, before, h.parts.read(), got.answers), err
	}
}

// prepareStatuses writes queries of orders that are rows, each by its buyer.
func (h *costDeployment) prepareStatuses(ctx context.Context, path string) error {
	bought := filepath.Join(h.wrk.dir, "requests")
	if err := h.purchases(ctx, bought, statusOrders+10*h.wrk.connections); err != nil {
		return err
	}
	if _, err := h.wrk.repeat(ctx, h.edge.addr, bought, h.cfg.seconds, h.parts); err != nil {
		return err
	}
	if _, err := h.written(ctx); err != nil {
		return err
	}
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

// preparePages writes requests of the page of a sale.
func (h *costDeployment) preparePages(ctx context.Context, path string) error {
	return errors.Join(h.createSale(ctx, h.at, saleID, 1000, "1h"), writeRequests(path, 100_000, opening))
}

// prepareRefusals writes purchases in a sale that is sold out.
func (h *costDeployment) prepareRefusals(ctx context.Context, path string) error {
	if err := errors.Join(h.createSale(ctx, h.at, saleID, 1, "-1s"),
		writeRequests(path, 100_000, func(b []byte, i int) []byte { return buyRequest(b, saleID, "", i) })); err != nil {
		return err
	}
	_, err := h.wrk.repeat(ctx, h.edge.addr, path, time.Second, h.parts) // one of these purchases is accepted
	return err
}
