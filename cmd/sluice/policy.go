package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/gateway/policy"
)

const defaultPolicy = "lua/policy.lua"

func (p *program) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check an edge policy, or try it on recorded traffic",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:     "check [FILE]",
		Short:   "Check a policy; exit 2 and file:line if it is bad",
		Example: "  sluice policy check lua/policy.lua",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := p.getenv(envPolicy)
			if file == "" {
				file = defaultPolicy
			}
			if len(args) == 1 {
				file = args[0]
			}
			read, err := policy.Read(file)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(p.out, "%s is sound: %d rules\n", file, len(read.Rules))
			return nil
		},
	})
	c.AddCommand(p.replayCommand())
	return c
}
