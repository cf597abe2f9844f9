package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/client"
)

func (o *adminClient) rehearseClean() *cobra.Command {
	return &cobra.Command{
		Use:   "clean [REHEARSAL]",
		Short: "Remove the copies of all rehearsals, or of one",
		Long: `Close rehearsals and delete them with their orders, in SQL and in Redis. A running rehearsal ends.
Orders that are still queued must become rows first: the command then reports that, exits 1, and can
be repeated.`,
		Example: `  sluice rehearse clean
  sluice rehearse clean rehearsal-shoe-mzxw6ytboi`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				var answer struct {
					Rehearsals []client.AdminSale `json:"rehearsals"`
				}
				if err := o.call(cmd.Context(), "GET", "/admin/v1/rehearsals", nil, &answer); err != nil {
					return err
				}
				for _, s := range answer.Rehearsals {
					args = append(args, s.ID)
				}
			}
			removed := []removedJSON{}
			for _, id := range args {
				var r removedJSON
				if err := o.call(cmd.Context(), "POST", rehearsalPath(id)+"/remove", struct{}{}, &r); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				removed = append(removed, r)
			}
			return o.show(removed, func(w io.Writer) {
				for _, r := range removed {
					fmt.Fprintf(w, "%s and its %d orders are removed\n", r.ID, r.Orders)
				}
				if len(removed) == 0 {
					fmt.Fprintln(w, "there is no rehearsal")
				}
			})
		},
	}
}
