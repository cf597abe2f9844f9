package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/api"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
	"sluice/internal/token"
)

// secret signs the buyers' tokens.
const secret = "bench-bench-bench-bench-bench-bench"

// saleID names the sale that every contest sells from.
const saleID = "bench"

// newKey is the key of all parts.
func newKey() (*token.Key, error) { return token.NewKey(secret) }

// userRate is the backend's default.
const userRate = admission.DefaultUserRate

// helloBody is the answer of the backend behind a plain proxy.
const helloBody = "hello"

// buyerHeader names the buyer to the bare handlers, which know no tokens.
const buyerHeader = "Buyer"

// childConfig configures a child process.
type childConfig struct {
	what     string // bare, shared, full, hello, soldout, receiver, gateway, standard or fast
	listen   string
	redis    string // URL
	data     string // its own directory
	profile  string // file for a CPU profile
	upstream string // address, of a proxy
	policy   string // file, of the gateway
}

// startChild runs this program again as a server of its own, so that a baseline has a process to itself as sluice has.
func (s *stage) startChild(c childConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := s.start(
		"",
		nil,
		self,
		"child",
		"--listen",
		c.listen,
		"--redis",
		c.redis,
		"--data",
		s.TempDir(),
		"--profile",
		c.profile,
		"--upstream",
		c.upstream,
		"--policy",
		c.policy,
		c.what,
	)
	if err != nil {
		return nil, err
	}
	return p, p.await(c.listen)
}

// child is the main function of a child process.
func child(args []string) int {
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	var c childConfig
	flags.StringVar(&c.listen, "listen", "", "address")
	flags.StringVar(&c.redis, "redis", "", "URL")
	flags.StringVar(&c.data, "data", "", "folder")
	flags.StringVar(&c.profile, "profile", "", "file")
	flags.StringVar(&c.upstream, "upstream", "", "address")
	flags.StringVar(&c.policy, "policy", "", "file")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	c.what = flags.Arg(0)
	if err := c.serve(); err != nil {
		fmt.Fprintln(os.Stderr, "bench child:", err)
		return 1
	}
	return 0
}

func (c childConfig) serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ln, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	if c.profile != "" {
		f, err := os.Create(c.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch c.what {
	case "bare":
		o, err := redis.ParseURL(c.redis)
		if err != nil {
			return err
		}
		return serveFiber(ctx, ln, bare(redis.NewClient(o)))
	case "shared":
		client, err := redisconn.Open(c.redis)
		if err != nil {
			return err
		}
		pipeline, err := redisconn.NewPipeline(client)
		if err != nil {
			return err
		}
		return serveFiber(ctx, ln, bare(pipeline))
	case "hello":
		return serveFiber(ctx, ln, func(f *fiber.Ctx) error { return f.SendString(helloBody) })
	case "soldout":
		return serveFiber(ctx, ln, soldOut)
	case "receiver":
		return receive(ctx, ln)
	case "gateway":
		return edgeHere(ctx, ln, c)
	case "standard":
		return standard(ctx, ln, c.upstream)
	case "fast":
		return fast(ctx, ln, c.upstream)
	case "full":
		return c.full(ctx, ln)
	}
	return fmt.Errorf("no such child: %q", c.what)
}

// admitOne is an admission script for one purchase at a time, with the same reads, checks and effects as sluice's,
// which decides a group.
//
//go:embed admit_one.lua
var admitOne string

// bare is the floor of a purchase: one handler, one script. It trusts the Buyer header, has no limits, and returns the
// script's answer.
func bare(client redis.Scripter) fiber.Handler {
	script := redis.NewScript(admitOne)
	shard := keyspace.Space{}.ShardOf(saleID)
	ids := newIDs()
	return func(f *fiber.Ctx) error {
		buyer := string(f.Request().Header.Peek(buyerHeader))
		answer, err := script.Run(
			f.Context(),
			client,
			[]string{
				shard.Sale(saleID),
				shard.Stock(saleID),
				shard.Buyers(saleID),
				"sluice:{0}:dedup:" + buyer,
				shard.Ready(),
				shard.Wake(),
			},
			ids.next().String(),
			saleID,
			buyer,
			"0123456789abcdef",
			120_000,
		).Text()
		if err != nil {
			return err
		}
		return f.Status(fiber.StatusAccepted).SendString(answer)
	}
}

// soldOut answers like a backend with a sold-out sale and a thousand holders, none of which is in the load.
func soldOut(f *fiber.Ctx) error {
	const holders = 1000
	if strings.HasSuffix(f.Path(), "/holders") {
		list := make([]byte, 0, 4*holders)
		for i := range uint32(holders) {
			list = binary.BigEndian.AppendUint32(list, i)
		}
		f.Set("Sluice-Holders", fmt.Sprintf("%s;accepted=%d;count=%d", saleID, holders, holders))
		return f.Type("application/octet-stream").Send(list)
	}
	f.Set("Sluice-Sale", fmt.Sprintf("%s;state=sold_out;version=1;ttl=1000;holders=%d", saleID, holders))
	f.Set(fiber.HeaderCacheControl, "no-store")
	f.Set(fiber.HeaderContentType, problem.ContentType)
	return f.Status(fiber.StatusConflict).Send(problem.New(problem.SoldOut, "All units are sold.").Body())
}

func serveFiber(ctx context.Context, ln net.Listener, h fiber.Handler) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.All("/*", h)
	done := make(chan error, 1)
	go func() { done <- app.Listener(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return app.ShutdownWithTimeout(0)
	}
}

// full is the purchase path of `sluice backend`, put together in this process so that it can be profiled.
func (c childConfig) full(ctx context.Context, ln net.Listener) error {
	client, err := redisconn.Open(c.redis)
	if err != nil {
		return err
	}
	defer client.Close()
	pipeline, err := redisconn.NewPipeline(client)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, "sqlite://"+filepath.Join(c.data, "orders.db"), store.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	key, err := newKey()
	if err != nil {
		return err
	}
	limiter, err := admission.NewUserLimiter(userRate, nil)
	if err != nil {
		return err
	}
	space := keyspace.Space{}
	admitter, err := admission.NewAdmitter(admission.Config{
		Client: pipeline, Space: space, IDs: admission.NewSequencer(client, space, time.Now),
	})
	if err != nil {
		return err
	}
	app, err := api.New(api.Config{
		Admitter: admitter,
		Stock:    admission.NewStock(admission.StockConfig{Client: client, Space: space}),
		Orders: struct {
			*store.Orders
			*store.Payments
		}{store.NewOrders(db), store.NewPayments(db)},
		Dead:    queue.NewList(client, 0, queue.Config{}),
		Tokens:  key,
		Limiter: limiter,
		Server:  httpserver.Config{Log: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		return err
	}
	return app.Serve(ctx, ln)
}

// openSale puts a fresh sale into an emptied Redis. The mark of a verified Redis stays: without it, backends would
// take it for one that lost its data.
func openSale(ctx context.Context, client *redis.Client, stock int64) error {
	epoch := keyspace.Shard(0).Guard()
	mark, err := client.HGetAll(ctx, epoch).Result()
	if err != nil {
		return err
	}
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		if len(mark) > 0 {
			p.HSet(ctx, epoch, mark)
		}
		return nil
	})
	if err != nil {
		return err
	}
	loader := admission.NewStock(admission.StockConfig{Client: client})
	return loader.Load(ctx, benchSale(stock), func(func(sale.Order) error) error { return nil })
}
