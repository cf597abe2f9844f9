package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/internal/token"
	"sluice/test/testenv"
)

// purchase compares the whole purchase path of one backend (token, limit per user, replay protection, script, JSON)
// with the least a purchase can be: a bare handler that runs the same script with one call of the plain Redis client.
// Every request is another buyer's, and every one is accepted.
func purchase(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	p, err := newPurchases(ctx, s, cfg)
	if err != nil {
		return nil, err
	}
	ours, err := p.backend(ctx)
	if err != nil {
		return nil, err
	}
	plain, err := p.child("bare", "")
	if err != nil {
		return nil, err
	}
	shared, err := p.child("shared", "")
	if err != nil {
		return nil, err
	}
	c := contest{
		name: "purchase", unit: "orders",
		contestants: []contestant{
			{"sluice backend", p.measure(ours, signedRequest)},
			{"bare Fiber + go-redis EVALSHA", p.measure(plain, bareRequest)},
			{"bare Fiber + redisconn.Pipeline", p.measure(shared, bareRequest)},
		},
		ratios: []ratio{
			{"purchase", "sluice backend", "bare Fiber + go-redis EVALSHA", 1.3, 1.5},
			{"purchase, of the same on shared round trips", "sluice backend", "bare Fiber + redisconn.Pipeline", 0, 0},
		},
	}
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// purchases is what the contestants have in common.
type purchases struct {
	stage    *stage
	cfg      settings
	redis    *testenv.Redis
	client   *redis.Client
	wrk      *wrk
	dir      string
	key      *token.Key
	redisPID int
	buyers   int // so far
}

func newPurchases(ctx context.Context, s *stage, cfg settings) (*purchases, error) {
	p := &purchases{stage: s, cfg: cfg, redis: testenv.StartRedis(s), dir: s.TempDir()}
	p.client = p.redis.Client()
	var err error
	if p.key, err = newKey(); err != nil {
		return nil, err
	}
	if p.redisPID, err = redisPID(ctx, p.client); err != nil {
		return nil, err
	}
	p.wrk, err = s.wrk()
	return p, err
}

// backend starts the contestant that is ours and returns its address. With a profile, it is the same path put
// together in a child process.
func (p *purchases) backend(ctx context.Context) (server, error) {
	if p.cfg.profile != "" {
		return p.child("full", filepath.Join(p.cfg.profile, "purchase.cpu.pprof"))
	}
	bin, err := p.stage.build(ctx)
	if err != nil {
		return server{}, err
	}
	addr := p.stage.address()
	proc, err := p.stage.start("", []string{
		"SLUICE_TOKEN_SECRET=" + secret, "SLUICE_ADMIN_TOKEN=" + secret, "SLUICE_REDIS_URL=" + p.redis.URL,
		"SLUICE_DATABASE_URL=sqlite://" + filepath.Join(p.stage.TempDir(), "orders.db"), "SLUICE_USER_RATE=" + userRate,
	}, bin, "backend", "--listen", addr, "--admin", p.stage.address())
	if err != nil {
		return server{}, err
	}
	return server{addr, proc.cmd.Process.Pid}, proc.await(addr)
}

func (p *purchases) child(what, profile string) (server, error) {
	addr := p.stage.address()
	proc, err := p.stage.startChild(childConfig{what: what, listen: addr, redis: p.redis.URL, profile: profile})
	if err != nil {
		return server{}, err
	}
	return server{addr, proc.cmd.Process.Pid}, nil
}

// server is where a contestant listens, and its process.
type server struct {
	addr string
	pid  int
}

// request appends the request of one buyer.
type request func(b []byte, p *purchases, i int) []byte

// signedRequest is what an edge sends a backend.
func signedRequest(b []byte, p *purchases, i int) []byte {
	buyer := buyerName(i)
	raw, err := p.key.Sign(buyer, time.Hour)
	if err != nil {
		panic(err) // HS256 cannot fail
	}
	b = append(b, "POST /v1/sales/"+saleID+"/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\nX-Request-Id: "...)
	b = hex.AppendEncode(b, []byte(buyer)[:16])
	b = append(append(b, "\r\nX-Real-IP: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.1\r\nAuthorization: Bearer "...), raw...)
	return append(b, "\r\n\r\n"...)
}

// bareRequest is no longer than the bare handler needs it.
func bareRequest(b []byte, _ *purchases, i int) []byte {
	b = append(b, "POST /v1/sales/"+saleID+"/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n"+buyerHeader+": "...)
	return append(append(b, buyerName(i)...), "\r\n\r\n"...)
}

// measure sells to one buyer after another from a fresh sale. No buyer and no token comes twice in a run of this
// program: what a backend remembers of earlier ones must not help. When the prepared requests do not last, it
// prepares more and starts again.
func (p *purchases) measure(at server, make request) func(context.Context) (float64, error) {
	n := 30_000 * int(p.cfg.seconds/time.Second)
	return func(ctx context.Context) (float64, error) {
		for {
			first := p.buyers
			p.buyers += n
			path := filepath.Join(p.dir, "requests")
			if err := writeRequests(path, n, func(b []byte, i int) []byte { return make(b, p, first+i) }); err != nil {
				return 0, err
			}
			got, err := p.sell(ctx, at, path)
			if !errors.Is(err, errTooFew) {
				return got.perSecond, err
			}
			n = n * 3 / 2
		}
	}
}

func (p *purchases) sell(ctx context.Context, at server, requests string) (outcome, error) {
	if err := openSale(ctx, p.client, 1e9); err != nil {
		return outcome{}, err
	}
	var m meter
	m.add("server", at.pid)
	m.add("redis", p.redisPID)
	before := m.read()
	got, err := p.wrk.load(ctx, at.addr, requests, p.cfg.seconds)
	if err != nil {
		return got, err
	}
	costs := m.each(before, got.answers)
	accepted, err := p.settle(ctx)
	if err != nil {
		return got, err
	}
	// A purchase in flight at the end is accepted and not counted.
	if got.refused > 0 || accepted < got.answers || accepted > got.answers+connections {
		return got, fmt.Errorf("%d answers, of them %d refusals, and %d orders accepted", got.answers, got.refused, accepted)
	}
	fmt.Fprintf(
		os.Stderr,
		"  each answer: %s  p50 %v  p99 %v\n",
		costs,
		got.p50.Round(10*time.Microsecond),
		got.p99.Round(10*time.Microsecond),
	)
	return got, nil
}

// settle waits until no purchase is in flight, so that no order ends up in the next contestant's sale, and returns
// the number of accepted orders.
func (p *purchases) settle(ctx context.Context) (accepted int64, err error) {
	for last := int64(-1); ; last = accepted {
		accepted, err = p.client.HGet(ctx, keyspace.Shard(0).Sale(saleID), "accepted").Int64()
		if err != nil || accepted == last {
			return accepted, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
