package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/problem"
	"sluice/test/testenv"
)

// helloBody is the answer of the backend behind a plain proxy.
const helloBody = "hello"

// buyerHeader names the buyer to the bare handlers, which do not read tokens.
const buyerHeader = "Buyer"

// childConfig configures a child process.
type childConfig struct {
	what     string // bare, shared, table, hello, soldout, receiver, gateway, standard or fast
	redis    string // URL
	database string // URL
	table    string // the name of a tableWay
	profile  string // file for a CPU profile
	upstream string // address, of a proxy
	policy   string // file, of the gateway
}

// child runs this program again as a server of its own, so that a baseline has its own process, as sluice has.
func (s *stage) child(c childConfig) server {
	self, err := os.Executable()
	s.check(err)
	addr := testenv.FreeAddress(s)
	return s.serve(addr, nil, self, "child", "--listen", addr, "--redis", c.redis, "--database", c.database,
		"--table", c.table, "--profile", c.profile, "--upstream", c.upstream, "--policy", c.policy, c.what)
}

// child is the main function of a child process.
func child(args []string) int {
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	var c childConfig
	listen := flags.String("listen", "", "address")
	flags.StringVar(&c.redis, "redis", "", "URL")
	flags.StringVar(&c.database, "database", "", "URL")
	flags.StringVar(&c.table, "table", "", "name")
	flags.StringVar(&c.profile, "profile", "", "file")
	flags.StringVar(&c.upstream, "upstream", "", "address")
	flags.StringVar(&c.policy, "policy", "", "file")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	c.what = flags.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ln, err := net.Listen("tcp", *listen)
	if err == nil {
		err = c.serve(ctx, ln)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "bench child:", err)
		return 1
	}
	return 0
}

func (c childConfig) serve(ctx context.Context, ln net.Listener) error {
	if c.profile != "" {
		stop, err := startProfile(c.profile)
		if err != nil {
			return err
		}
		defer stop()
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
	case "table":
		handler, err := serveTable(ctx, c.database, c.table)
		if err != nil {
			return err
		}
		return serveFiber(ctx, ln, handler)
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
	}
	return fmt.Errorf("no such child: %q", c.what)
}

// startProfile writes a CPU profile of this process to a file until stop.
func startProfile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, pprof.StartCPUProfile(f)
}

// admitOne is an admission script for one purchase at a time, with the same reads, checks and effects as sluice's,
// which decides a group.
//
//go:embed admit_one.lua
var admitOne string

// bare is the minimum of a purchase: one handler, one script. It trusts the Buyer header, has no limits, and returns
// the script's answer.
func bare(client redis.Scripter) fiber.Handler {
	script := redis.NewScript(admitOne)
	shard := keyspace.Space{}.ShardOf(saleID)
	var ids ids
	return func(f *fiber.Ctx) error {
		buyer := string(f.Request().Header.Peek(buyerHeader))
		keys := []string{
			shard.Sale(saleID), shard.Stock(saleID), shard.Buyers(saleID), "sluice:{0}:dedup:" + buyer,
			shard.Ready(), shard.Wake(),
		}
		answer, err := script.Run(f.Context(), client, keys,
			ids.next().String(), saleID, buyer, "0123456789abcdef", 120_000).Text()
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
	defer context.AfterFunc(ctx, func() { _ = app.ShutdownWithTimeout(0) })()
	return app.Listener(ln)
}
