package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"sluice/gateway/policy"
)

func (p *program) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "Check an edge policy",
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
				file = "lua/policy.lua"
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
	return c
}
