package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"sluice/client"
)

func (p *program) shardCommand() *cobra.Command {
	o := &adminClient{p: p}
	return o.adminCommand(&cobra.Command{
		Use:   "shard",
		Short: "Show where the shards of the stock are stored",
	}, o.shardList())
}

func (o *adminClient) shardList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the shards with their Redis server, their sales and their orders",
		Long: `List every shard with its slot in a Redis Cluster, the Redis server that stores it, the sales and
segments of sales that it holds, and its orders that are ready, leased or dead. A shard that is not
verified sells nothing: the last column has the reason.`,
		Example: `  sluice shard list
  sluice shard list --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd.Context(), o, adminPath("shards"), "shards",
				"SHARD\tSLOT\tMASTER\tSALES\tREADY\tLEASED\tDEAD\tSTATE", shardCells)
		},
	}
}

func shardCells(s client.Shard) []any {
	slot := any("-")
	if s.Slot != nil {
		slot = *s.Slot
	}
	state := "verified"
	if !s.Verified {
		state = "not verified: " + s.Reason
	}
	return []any{s.Shard, slot, cmp.Or(s.Master, "?"), s.Sales, s.Ready, s.Leased, s.Dead, state}
}
