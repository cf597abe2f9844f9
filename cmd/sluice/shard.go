package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/redis/redisconn"
	"sluice/client"
	"sluice/internal/address"
	"sluice/internal/assemble"
	"sluice/internal/plural"
)

func (o *adminClient) shardCommand() *cobra.Command {
	return o.adminCommand(&cobra.Command{
		Use:   "shard",
		Short: "Show where the shards of the stock are stored, and move them",
	}, o.shardList(), o.shardMove())
}

func (o *adminClient) shardList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the shards with their Redis server, their sales and their orders",
		Long: `List every shard with its slot in a Redis Cluster, the Redis server that stores it, the sales and
segments of sales that it holds, and its orders that are ready, leased or dead. A shard that is not
verified, or in a Redis that rejects writes, sells nothing: the last column has the reason.`,
		Example: `  sluice shard list
  sluice shard list --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd.Context(), o, get(adminPath("shards")),
				"SHARD\tSLOT\tMASTER\tSALES\tREADY\tLEASED\tDEAD\tSTATE", shardCells)
		},
	}
}

func shardCells(s client.Shard) []any {
	slot := any("-")
	if s.Slot != nil {
		slot = *s.Slot
	}
	state, reason := "verified", oneLine(errors.New(s.Reason))
	switch {
	case !s.Verified:
		state = "not verified: " + reason
	case reason != "":
		state = "verified, but Redis rejects writes: " + reason
	}
	return []any{s.Shard, slot, cmp.Or(s.Master, "?"), s.Sales, s.Ready, s.Leased, s.Dead, state}
}

func (o *adminClient) shardMove() *cobra.Command {
	stores := assemble.StoresConfig{Existing: true}
	var to string
	c := &cobra.Command{
		Use:   "move SHARD --to HOST:PORT",
		Short: "Move a shard to another master of the Redis Cluster, without a rebuild",
		Long: `Hold a shard, copy its keys to another master of the Redis Cluster, compare both, and make that
master the owner of its slot. Purchases from the sales of the shard are answered 503 with
Retry-After meanwhile, for seconds at most; other shards are not affected. No order is lost if the
command is killed or a server fails: the shard then continues on the old master, or a backend
rebuilds it. Run the command again to move it; this also finishes a move that was interrupted.

The command connects to Redis and to the database itself, as a worker does. The database must be that
of the running deployment, with tables of the version of this program, and must respond: the command
does not create it, migrate it or wait for it.`,
		Example: `  sluice shard move 3 --to 10.0.0.6:6379 --shards 8 --redis redis+cluster://10.0.0.5:6379,10.0.0.6:6379 --database postgres://sluice@10.0.0.4/sluice`,
		RunE: func(cmd *cobra.Command, args []string) error {
			shard, err := strconv.Atoi(args[0])
			if err != nil || shard < 0 || shard >= stores.Shards {
				return usage("%q is not a shard: want a number from 0 to %d (sluice shard list)", args[0], stores.Shards-1)
			}
			s, closeStores, err := o.p.openStores(cmd.Context(), "sluice-shard-move", stores, newRegistry())
			if err != nil {
				return err
			}
			defer closeStores()
			status := o.p.status()
			defer status.done()
			moved, err := s.MoveShard(cmd.Context(), shard, to, func(step string, done, total int) {
				line := fmt.Sprintf("shard %d: %s", shard, step)
				if total > 0 {
					line += fmt.Sprintf(", %d of %d keys", done, total)
				}
				status.show(line)
			})
			if err != nil {
				return err
			}
			status.done()
			result := map[string]any{
				"shard": shard, "from": moved.From, "to": moved.To, "keys": moved.Keys,
				"held_seconds": moved.Held.Seconds(), "verified": moved.Verified,
			}
			return o.p.show(result, func(w io.Writer) {
				switch {
				case moved.From == moved.To:
					fmt.Fprintf(w, "shard %d is on %s already\n", shard, to)
				case !moved.Verified:
					fmt.Fprintf(w, "shard %d is on %s now, where a backend rebuilds it: sluice shard list\n", shard, to)
				default:
					fmt.Fprintf(w, "shard %d moved from %s to %s: %s; its sales were held for %v\n",
						shard, moved.From, to, plural.Count(moved.Keys, "key"), moved.Held.Round(time.Millisecond))
				}
			})
		},
	}
	f := o.p.flags(c)
	f.stores(&stores)
	f.StringVar(&to, "to", "", "master to move the shard to, host:port, as sluice shard list shows it")
	f.check(func(bad *problems) {
		if host, _, err := address.Split(to); err != nil || host == "" {
			bad.add("--to %q: want the address of a master, host:port", to)
		}
		if stores.Redis != "" && !redisconn.IsCluster(stores.Redis) {
			bad.add("--redis is one Redis, where a shard cannot move: name a cluster, redis+cluster://host:port")
		}
	})
	return c
}
