package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"sluice/backend/store"
	"sluice/client"
)

func (o *adminClient) saleAudit() *cobra.Command {
	return &cobra.Command{
		Use:   "audit SALE",
		Short: "Audit a sale: count every unit, exit 1 if it does not balance",
		Example: `  sluice sale audit shoe
  sluice sale audit shoe --json | jq .balanced`,
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, r, err := o.audit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := o.p.show(raw, func(w io.Writer) { printAudit(w, r) }); err != nil || r.Balanced {
				return err
			}
			return fmt.Errorf("sale %s does not balance", args[0])
		},
	}
}

// audit audits a sale. While it waits, it shows progress on a terminal.
func (o *adminClient) audit(ctx context.Context, id string) (raw json.RawMessage, r client.Audit, err error) {
	done := o.p.waiting(func() string { return "counting every unit of " + id })
	defer done()
	raw, err = o.fetch(ctx, get(adminPath("sales", id, "audit")), &r)
	return raw, r, err
}

func printAudit(w io.Writer, r client.Audit) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "left\t%d\t\n", r.Left)
	if len(r.Segments) > 0 {
		fmt.Fprintf(t, "in transfer\t%d\t\n", r.InTransfer)
	}
	fmt.Fprintf(t, "ready\t%d\t\ndelayed\t%d\t\nleased\t%d\t\n", r.Ready, r.Delayed, r.Leased)
	fmt.Fprintf(t, "ordered\t%d\t\ndead\t%d\t\nstock\t%d\t\n", r.Ordered, r.Dead, r.Stock)
	t.Flush()
	if r.Returning > 0 {
		fmt.Fprintf(w, "cancelled orders whose units have not returned to the sale yet: %d\n", r.Returning)
	}
	if r.Archived {
		fmt.Fprintln(w, "archived: the orders are in the files that sluice sale show lists")
	}
	if r.Balanced {
		fmt.Fprintln(w, "balanced")
	}
	if r.Unbacked > 0 {
		fmt.Fprintf(w, "dead orders without a unit, in addition: %d (Redis had lost them, and their units were sold again)\n",
			r.Unbacked)
	}
	for _, d := range r.Differences {
		fmt.Fprintln(w, d)
	}
	for _, d := range r.Orders {
		fmt.Fprintf(w, "order %s of %q: %s, and %s\n", d.OrderID, d.Buyer, d.Found, d.Missing)
	}
}

// unbalancedWarning returns a function that is called after the sale is resumed. If the sale was paused automatically,
// that function audits it, and prints a warning with the remedy if it does not balance. Errors of the audit are
// ignored, because the resume has succeeded.
func (o *adminClient) unbalancedWarning(ctx context.Context, id string) (warn func()) {
	var s client.AdminSale
	actor := ""
	if o.do(ctx, get(adminPath("sales", id)), &s) == nil {
		actor, _, _ = strings.Cut(s.PausedBy, ": ")
	}
	if actor != store.ActorAudit && actor != store.ActorRebuild {
		return func() {}
	}
	return func() {
		if _, r, err := o.audit(ctx, id); err == nil && !r.Balanced {
			fmt.Fprintf(o.p.errOut, "warning: sale %s does not balance, and the next audit pauses it again: "+
				"run sluice sale rebuild %s\n", id, id)
		}
	}
}
