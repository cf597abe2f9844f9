package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// footprint is the memory of accepted orders that are still queued, in bytes of Redis: per order, and in all.
type footprint struct {
	buyers, dedup, ready float64
	used, rss            float64
}

// memory accepts n purchases with the real script and then removes one kind of key after the other: the memory that
// this frees is that of the kind.
func memory(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	n := flags.Int("buyers", 1_000_000, "buyers, which buy one unit each")
	keyed := flags.Bool("idempotency-keys", false, "the requests have an Idempotency-Key")
	if err := parse(flags, args); err != nil {
		return err
	}
	f, err := weigh(ctx, s, *n, *keyed)
	if err != nil {
		return err
	}
	all := f.buyers + f.dedup + f.ready
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tbytes each\tshare\t")
	line := func(name string, bytes float64) { fmt.Fprintf(t, "%s\t%.0f\t%.0f%%\t\n", name, bytes, 100*bytes/all) }
	line("buyers hash, per accepted buyer", f.buyers)
	line("dedup key, per accepted request", f.dedup)
	line("ready list, per queued order", f.ready)
	line("together", all)
	fmt.Fprintf(t, "%s orders: used_memory %s MB, resident %s MB\n", number(float64(*n)),
		number(f.used/1e6), number(f.rss/1e6))
	return t.Flush()
}

func weigh(ctx context.Context, s *stage, n int, keyed bool) (f footprint, err error) {
	client := testenv.StartRedis(s).Client()
	if err := openSale(ctx, client, int64(n)); err != nil {
		return f, err
	}
	script := redisscript.Load("admit")
	if err := script.Load(ctx, client).Err(); err != nil {
		return f, err
	}
	before, err := redisNumber(ctx, client, "memory", "used_memory")
	if err != nil {
		return f, err
	}
	if err := accept(ctx, client, script, n, keyed); err != nil {
		return f, err
	}
	used, err := redisNumbers(ctx, client, "memory", "used_memory", "used_memory_rss")
	if err != nil {
		return f, err
	}
	f.used, f.rss = used[0], used[1]
	shard := keyspace.Shard(0)
	rest := f.used
	for key, each := range map[string]*float64{shard.Buyers(saleID): &f.buyers, shard.Ready(): &f.ready} {
		if err := client.Del(ctx, key).Err(); err != nil {
			return f, err
		}
		now, err := redisNumber(ctx, client, "memory", "used_memory")
		if err != nil {
			return f, err
		}
		*each = (rest - now) / float64(n)
		rest = now
	}
	f.dedup = (rest - before) / float64(n) // with the tables that find the keys and their deadlines
	return f, nil
}

// accept buys for n buyers, in pipelines.
func accept(ctx context.Context, client redisconn.Client, script *redis.Script, n int, keyed bool) error {
	shard := keyspace.Shard(0)
	var ids ids
	for begin := 0; begin < n; begin += 1000 {
		answers, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := begin; i < min(begin+1000, n); i++ {
				buyer := buyerName(i)
				keys := []string{shard.Sale(saleID), shard.Stock(saleID), shard.Buyers(saleID), shard.Ready(), shard.Wake()}
				request := keyspace.Request("r:" + buyer)
				if keyed {
					keys, request = append(keys, shard.Dedup(buyer, "k:"+buyer)), "0123456789abcdef 86400000"
				}
				script.EvalSha(ctx, p, keys, saleID, "", 0, "", ids.next().String(), buyer, request)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, a := range answers {
			if text, _ := a.(*redis.Cmd).Text(); text != "accepted" {
				return fmt.Errorf("not accepted: %s", text)
			}
		}
	}
	left, err := client.Get(ctx, shard.Stock(saleID)).Int()
	if err == nil && left != 0 {
		err = fmt.Errorf("%d units left", left)
	}
	return err
}
