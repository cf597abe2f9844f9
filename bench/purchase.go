package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"time"

	"sluice/backend/api/userlimit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// purchase compares the whole purchase path of one backend (token, limit per user, replay protection, script, JSON)
// with a minimal purchase: a bare handler that runs the same script with one call of the plain Redis client. Every
// request is from a new buyer, and every one is accepted.
func purchase(s *stage, cfg settings) contest {
	p := &purchases{cfg: cfg, wrk: s.wrk()}
	server := testenv.StartRedis(s)
	p.client = server.Client()
	p.redisPID = redisPID(s, p.client)
	listen := testenv.FreeAddress(s)
	p.admin = testenv.FreeAddress(s)
	ours := s.serve(listen, sluiceEnv(server.URL, "sqlite://"+filepath.Join(s.TempDir(), "orders.db")), s.build(),
		"backend", "--listen", listen, "--admin", p.admin)
	const backend, plain, shared = "sluice backend", "bare Fiber + go-redis EVALSHA", "bare Fiber + redisconn.Pipeline"
	return contest{
		name: "purchase", unit: "orders",
		contestants: []contestant{
			{backend, p.measure(ours, true)},
			{plain, p.measure(s.child(childConfig{what: "bare", redis: server.URL}), false)},
			{shared, p.measure(s.child(childConfig{what: "shared", redis: server.URL}), false)},
		},
		ratios: []ratio{
			{"purchase", backend, plain, 1.3, 1.5},
			{"purchase, of the same on shared round trips", backend, shared, 0, 0},
		},
	}
}

// sluiceEnv is the environment of sluice's programs, with the backend's default limit per user.
func sluiceEnv(redisURL, databaseURL string) []string {
	return []string{
		"SLUICE_TOKEN_SECRET=" + secret, "SLUICE_ADMIN_TOKEN=" + secret, "SLUICE_USER_RATE=" + userlimit.DefaultRate,
		"SLUICE_REDIS_URL=" + redisURL, "SLUICE_DATABASE_URL=" + databaseURL,
	}
}

// purchases holds what the contestants share.
type purchases struct {
	cfg      settings
	client   redisconn.Client
	redisPID int
	admin    string // address, of sluice's backend
	wrk      *wrk
	buyers   int // so far
}

// signedRequest appends the purchase of buyer i in a sale as an edge sends it to a backend.
func signedRequest(b []byte, sale string, i int) []byte {
	id := hex.EncodeToString([]byte(buyerName(i))[:16])
	return buyRequest(b, sale, "X-Request-Id: "+id+"\r\nX-Real-IP: 10.0.0.1\r\n", i)
}

// bareRequest appends the shortest request that the bare handler accepts.
func bareRequest(b []byte, i int) []byte {
	b = append(b, "POST /v1/sales/"+saleID+"/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n"+buyerHeader+": "...)
	return append(append(b, buyerName(i)...), "\r\n\r\n"...)
}

// measure sells a fresh sale to one buyer after another. A run of this program repeats no buyer and no token, so that
// no cache of a backend helps.
func (p *purchases) measure(at server, ours bool) measurement {
	request, profile := bareRequest, ""
	if ours {
		request = func(b []byte, i int) []byte { return signedRequest(b, saleID, i) }
		if p.cfg.profile != "" {
			profile = filepath.Join(p.cfg.profile, "purchase.cpu.pprof")
		}
	}
	return p.wrk.fresh(20_000, p.cfg,
		func(_ context.Context, path string, n int) error {
			first := p.buyers
			p.buyers += n
			return writeRequests(path, n, func(b []byte, i int) []byte { return request(b, first+i) })
		},
		func(ctx context.Context, requests string, _ int) (perSecond float64, err error) {
			err = profiled(ctx, p.admin, profile, p.cfg.seconds, func() (err error) {
				perSecond, err = p.sell(ctx, at, requests)
				return err
			})
			return perSecond, err
		})
}

func (p *purchases) sell(ctx context.Context, at server, requests string) (float64, error) {
	if err := openSale(ctx, p.client, 1e9); err != nil {
		return 0, err
	}
	got, err := p.wrk.load(ctx, at.addr, requests, p.cfg.seconds, newMeter("server", at.pid, "redis", p.redisPID))
	if err != nil {
		return 0, err
	}
	accepted, err := p.settle(ctx)
	if err != nil {
		return 0, err
	}
	// A purchase in progress at the end is accepted and not counted.
	if got.refused > 0 || accepted < got.answers || accepted > got.answers+connections {
		return 0, fmt.Errorf("%d answers, %d of them refusals, and %d orders accepted", got.answers, got.refused, accepted)
	}
	return got.perSecond, nil
}

// settle waits until no purchase is in progress, so that no order belongs to the next contestant's sale, and returns
// the number of accepted orders.
func (p *purchases) settle(ctx context.Context) (accepted int64, err error) {
	for last := int64(-1); ; last = accepted {
		accepted, err = p.client.HGet(ctx, keyspace.Shard(0).Sale(saleID), "accepted").Int64()
		if err != nil || accepted == last {
			return accepted, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
