package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

type deadJSON struct {
	OrderID    string    `json:"order_id"` // empty for a text that was found on the queue and is no order
	Key        string    `json:"key"`      // what retry and cancel take
	SaleID     string    `json:"sale_id"`
	Buyer      string    `json:"buyer"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts"`
	Crashes    int       `json:"crashes"`
	DiedAt     time.Time `json:"died_at"`
	Cancelling bool      `json:"cancelling"`
}

func (p *program) deadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "Look at orders that failed too often; retry or cancel them",
		Long: `A dead order was accepted, could not be written, and still holds its unit. Retry puts it back on the queue; cancel gives the
unit back to the sale and frees the buyer.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := p.operatorFlags(c)
	c.AddCommand(o.deadList(), o.deadRetry(), o.deadCancel())
	return c
}

func (o *operator) deadList() *cobra.Command {
	var saleID, after string
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead orders, the oldest first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if saleID != "" {
				q.Set("sale", saleID)
			}
			if after != "" {
				q.Set("after", after)
			}
			var page json.RawMessage
			if err := o.call(cmd.Context(), http.MethodGet, "/admin/v1/dead?"+q.Encode(), nil, &page); err != nil {
				return err
			}
			var answer struct {
				Dead []deadJSON `json:"dead"`
				Next string     `json:"next"`
			}
			if err := json.Unmarshal(page, &answer); err != nil {
				return err
			}
			return o.show(page, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(t, "ORDER\tSALE\tBUYER\tDIED\tATTEMPTS\tCRASHES\tREASON")
				for _, d := range answer.Dead {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", d.Key, d.SaleID, d.Buyer, d.DiedAt.UTC().Format(time.RFC3339), d.Attempts, d.Crashes, d.Reason)
				}
				t.Flush()
				if answer.Next != "" {
					fmt.Fprintf(w, "more: --after %s\n", answer.Next)
				}
			})
		},
	}
	c.Flags().StringVar(&saleID, "sale", "", "only of this sale")
	c.Flags().StringVar(&after, "after", "", "where the page before ended")
	c.Flags().IntVar(&limit, "limit", 100, "how many at most")
	return c
}

func (o *operator) deadRetry() *cobra.Command {
	return &cobra.Command{
		Use:   "retry ORDER...",
		Short: "Put dead orders back on the queue",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := o.call(cmd.Context(), http.MethodPost, "/admin/v1/dead/"+url.PathEscape(id)+"/retry", struct{}{}, nil); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				if !o.json {
					fmt.Fprintf(o.p.out, "%s is back on the queue\n", id)
				}
			}
			return nil
		},
	}
}

func (o *operator) deadCancel() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "cancel ORDER...",
		Short:   "Cancel dead orders: the unit goes back on sale and the buyer is free",
		Example: `  sluice dead cancel 923417600000000123 --reason "address cannot be served"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := o.call(cmd.Context(), http.MethodPost, "/admin/v1/dead/"+url.PathEscape(id)+"/cancel", map[string]string{"reason": reason}, nil); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
				if !o.json {
					fmt.Fprintf(o.p.out, "%s is cancelled\n", id)
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; it is kept with the order")
	return c
}
