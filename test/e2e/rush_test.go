package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"

	"sluice/test/testenv"
)

// A rush: far more buyers than units, each retrying through an edge, while processes are killed. SLUICE_RUSH_REQUESTS
// is its number of requests (200000 for `make rush`), with a tenth as many buyers and a two-hundredth as many units.
// Behind the gateway, PostgreSQL is behind PgBouncer in transaction mode.
func TestRushThroughNginx(t *testing.T)   { t.Parallel(); rush(t, "edge") }
func TestRushThroughGateway(t *testing.T) { t.Parallel(); rush(t, "gateway") }

func rush(t *testing.T, edge string) {
	requests := 20_000
	if n, err := strconv.Atoi(os.Getenv("SLUICE_RUSH_REQUESTS")); err == nil && n >= 1000 {
		requests = n
	}
	buyers, units := requests/10, requests/200

	s := startStack(t, shape{
		edge: edge, backends: 2, workers: 2, policy: filepath.Join(root, "loadtest/policy.lua"), pooled: edge == "gateway",
	})
	s.createSale("rush", units)

	faults := make(chan string, 8)
	ctx, stop := context.WithCancel(context.Background())
	var sent atomic.Int64
	var wg sync.WaitGroup
	got := &tally{status: map[string]int{}, accepted: map[string]string{}}
	wg.Go(func() { // each fault occurs at a share of the units sold, so that the sale runs
		defer close(faults)
		for _, f := range []struct {
			at   float64
			name string
			do   func()
		}{
			{0.1, "worker 1 killed", s.workers[0].crash},
			{0.3, "backend 2 killed", s.backends[1].crash},
			{0.6, "worker 1 killed again", s.workers[0].crash},
		} {
			testenv.Eventually(t, 5*time.Minute, "enough units sold for: "+f.name, func() bool {
				return float64(got.sold()) >= f.at*float64(units) || ctx.Err() != nil
			})
			f.do()
			faults <- fmt.Sprintf("%s after %d requests", f.name, sent.Load())
		}
	})
	begin := time.Now()
	sendRush(s, got, requests, buyers, &sent)
	took := time.Since(begin)
	stop()
	wg.Wait()

	for f := range faults {
		t.Log(f)
	}
	t.Logf("%d requests of %d buyers for %d units in %.1f s (%.0f/s)\n%s", requests, buyers, units, took.Seconds(),
		float64(requests)/took.Seconds(), got)

	final := s.settle("rush", int64(units))
	t.Logf("idle %.1f s after the last request; audit: %+v", time.Since(begin.Add(took)).Seconds(), final)
	if !final.Balanced || final.Left != 0 || final.Dead != 0 {
		t.Errorf("the audit does not balance: %+v", final)
	}
	if n := got.status["202"]; n < 1 {
		t.Error("no order was accepted")
	}
	rows, distinct := s.rows("rush")
	if rows != units || distinct != units {
		t.Errorf("%d rows of %d buyers, want %d of each", rows, distinct, units)
	}
	for id, buyer := range got.accepted {
		if owner := s.owner(id); owner != buyer {
			t.Errorf("order %s was confirmed to %s, and its row has %q", id, buyer, owner)
		}
	}
	if got.unexplained > 0 {
		t.Errorf("%d answers were neither an acceptance nor a known rejection", got.unexplained)
	}
}

// tally counts the answers of a rush.
type tally struct {
	sync.Mutex
	status      map[string]int    // status and code -> answers
	accepted    map[string]string // order id -> buyer
	unexplained int
	dropped     int // connections that ended without an answer
}

func (t *tally) String() string {
	var lines []string
	for k, n := range t.status {
		lines = append(lines, fmt.Sprintf("  %-32s %7d", k, n))
	}
	sort.Strings(lines)
	return strings.Join(append(lines, fmt.Sprintf("  %-32s %7d", "no answer", t.dropped)), "\n")
}

func (t *tally) sold() int {
	t.Lock()
	defer t.Unlock()
	return len(t.accepted)
}

func sendRush(s *stack, got *tally, requests, buyers int, sent *atomic.Int64) {
	tokens := make([]string, buyers)
	for i := range tokens {
		tokens[i] = s.token(fmt.Sprint("buyer-", i))
	}
	const senders = 128
	c := &fasthttp.Client{
		MaxConnsPerHost:           senders,
		ReadTimeout:               10 * time.Second,
		MaxIdemponentCallAttempts: 1,
		RetryIfErr:                func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}
	url := s.base + "/v1/sales/rush/orders"
	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(sender)))
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			for sent.Add(1) <= int64(requests) {
				b := random.IntN(buyers)
				req.Reset()
				req.SetRequestURI(url)
				req.Header.SetMethod("POST")
				req.Header.Set("Authorization", "Bearer "+tokens[b])
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", b>>16, b>>8&255, b&255))
				if random.IntN(2) == 0 {
					req.Header.Set("Idempotency-Key", `"click-`+strconv.Itoa(random.IntN(3))+`"`)
				}
				err := c.Do(req, resp)
				got.note(fmt.Sprint("buyer-", b), resp, err)
			}
		})
	}
	wg.Wait()
	sent.Store(int64(requests))
}

func (t *tally) note(buyer string, resp *fasthttp.Response, err error) {
	t.Lock()
	defer t.Unlock()
	if err != nil {
		t.dropped++
		return
	}
	body := string(resp.Body())
	code := field(body, "code")
	label := strings.TrimSpace(strconv.Itoa(resp.StatusCode()) + " " + code)
	t.status[label]++
	if n := t.status[label]; n <= 20 ||
		n%1000 == 0 { // checking all of them would take more processor time than the servers
		broken.check("POST", "/v1/sales/rush/orders", resp)
	}
	if resp.StatusCode() == 202 {
		t.accepted[field(body, "order_id")] = buyer
	} else if code == "" {
		t.unexplained++
	}
}

// field returns a string of flat JSON; it is fast, for a load generator.
func field(body, name string) string {
	_, rest, _ := strings.Cut(body, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func (s *stack) sql() *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(context.Background(), s.pg.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return conn
}

func (s *stack) rows(saleID string) (rows, buyers int) {
	s.t.Helper()
	conn := s.sql()
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(),
		"SELECT count(*), count(DISTINCT buyer) FROM orders WHERE sale_id = $1 AND status <> 'cancelled'",
		saleID).Scan(&rows, &buyers); err != nil {
		s.t.Fatal(err)
	}
	return rows, buyers
}

func (s *stack) owner(id string) string {
	s.t.Helper()
	conn := s.sql()
	defer conn.Close(context.Background())
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		s.t.Fatalf("order id %q", id)
	}
	var buyer string
	if err := conn.QueryRow(context.Background(), "SELECT buyer FROM orders WHERE id = $1", n).Scan(&buyer); err != nil {
		return err.Error()
	}
	return buyer
}
