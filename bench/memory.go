package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// footprint is what n accepted and still queued orders hold in Redis, in bytes.
type footprint struct {
	Orders  int     `json:"orders"`
	Buyers  float64 `json:"buyers_hash_bytes_per_buyer"`
	Dedup   float64 `json:"dedup_keys_bytes_per_request"`
	Ready   float64 `json:"ready_list_bytes_per_order"`
	Used    int64   `json:"used_memory_bytes"`
	RSS     int64   `json:"used_memory_rss_bytes"`
	Command string  `json:"command"`
}

// memory accepts n purchases by the real script and takes the result apart: what removing a key gives back is what it
// held.
func memory(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	n := flags.Int("buyers", 1_000_000, "how many buyers buy one unit each")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	if *n < 1000 || flags.NArg() > 0 {
		return usageError("at least 1000 buyers, and there are no arguments")
	}
	f, err := weigh(ctx, s, *n)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(os.Stdout, f)
	}
	f.print(os.Stdout)
	return nil
}

func weigh(ctx context.Context, s *stage, n int) (footprint, error) {
	client := testenv.StartRedis(s).Client()
	if err := openSale(ctx, client, int64(n)); err != nil {
		return footprint{}, err
	}
	script := redisscript.Load("admit")
	if err := script.Load(ctx, client).Err(); err != nil {
		return footprint{}, err
	}
	before, _, err := used(ctx, client)
	if err != nil {
		return footprint{}, err
	}
	if err := accept(ctx, client, script, n); err != nil {
		return footprint{}, err
	}
	full, rss, err := used(ctx, client)
	if err != nil {
		return footprint{}, err
	}
	shard := keyspace.Shard(0)
	f := footprint{Orders: n, Used: full, RSS: rss, Command: fmt.Sprintf("go run . memory --buyers %d", n)}
	rest := full
	for key, each := range map[string]*float64{shard.Buyers(saleID): &f.Buyers, shard.Ready(): &f.Ready} {
		if err := client.Del(ctx, key).Err(); err != nil {
			return footprint{}, err
		}
		now, _, err := used(ctx, client)
		if err != nil {
			return footprint{}, err
		}
		*each = float64(rest-now) / float64(n)
		rest = now
	}
	f.Dedup = float64(rest-before) / float64(n) // with the tables that find the keys and their deadlines
	return f, nil
}

// accept buys for n buyers, in pipelines.
func accept(ctx context.Context, client *redis.Client, script *redis.Script, n int) error {
	shard := keyspace.Shard(0)
	ids := newIDs()
	for begin := 0; begin < n; begin += 1000 {
		answers, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := begin; i < min(begin+1000, n); i++ {
				buyer := buyerName(i)
				keys := []string{
					shard.Sale(saleID),
					shard.Stock(saleID),
					shard.Buyers(saleID),
					shard.Ready(),
					shard.Wake(),
					shard.Dedup(buyer, "r:"+buyer),
				}
				script.EvalSha(ctx, p, keys, saleID, ids.next().String(), buyer, "0123456789abcdef", 24*3600*1000)
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

var infoBytes = regexp.MustCompile(`(?m)^(used_memory|used_memory_rss):(\d+)`)

func used(ctx context.Context, client *redis.Client) (memory, rss int64, err error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, m := range infoBytes.FindAllStringSubmatch(info, -1) {
		v, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if m[1] == "used_memory" {
			memory = v
		} else {
			rss = v
		}
	}
	return memory, rss, nil
}

func (f footprint) print(w io.Writer) {
	all := f.Buyers + f.Dedup + f.Ready
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tbytes each\tshare\t")
	for _, row := range []struct {
		name  string
		bytes float64
	}{{"buyers hash, per accepted buyer", f.Buyers}, {"dedup key, per accepted request", f.Dedup}, {"ready list, per queued order", f.Ready}, {"together", all}} {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f%%\t\n", row.name, row.bytes, 100*row.bytes/all)
	}
	t.Flush()
	fmt.Fprintf(
		w,
		"%s orders: used_memory %s MB, resident %s MB\n",
		number(float64(f.Orders)),
		number(float64(f.Used)/1e6),
		number(float64(f.RSS)/1e6),
	)
}
