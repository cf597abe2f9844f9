package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sluice/backend/admin/adminhttp"
	"sluice/client"
)

func (o *adminClient) orderCommand() *cobra.Command {
	return o.adminCommand(&cobra.Command{
		Use:   "order",
		Short: "List orders in the database; cancel unpaid ones",
		Long: `An order in the database is created, paid or cancelled. Cancelling returns its unit to the sale and
the slot to the buyer. Orders that could not be written are dead letters: see "sluice dead".`,
	}, o.orderList(), o.orderShow(), o.orderCancel())
}

func (o *adminClient) orderList() *cobra.Command {
	var page pageFlags
	var sale, buyer, status string
	var newest bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List orders, the oldest first",
		Example: `  sluice order list --sale shoe --status cancelled
  sluice order list --buyer ann --newest`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sort := ""
			if newest {
				sort = "newest"
			}
			r := page.request(adminPath("orders"), "after", page.after, "sale", sale, "buyer", buyer, "status", status,
				"sort", sort)
			return printList(cmd.Context(), o, r,
				"ORDER\tSALE\tBUYER\tSTATUS\tCREATED\tPAY BY\tWHY CANCELLED", func(r client.AdminOrder) []any {
					return []any{r.OrderID, r.SaleID, r.Buyer, r.Status, r.CreatedAt, r.PayBy, whyCancelled(r)}
				})
		},
	}
	page.add(c)
	f := o.p.flags(c)
	f.StringVar(&sale, "sale", "", "only of this sale")
	f.StringVar(&buyer, "buyer", "", "only of this buyer; without --sale, in the 500 newest sales")
	f.BoolVar(&newest, "newest", false, "list the newest orders first")
	f.oneOf(c, &status, "status", "", "",
		"only this status: created, paid or cancelled", "created", "paid", "cancelled")
	f.filled("sale", "buyer", "status")
	return c
}

func whyCancelled(r client.AdminOrder) string {
	if r.CancelledBy == "" {
		return ""
	}
	why := r.CancelledBy
	if r.Reason != "" {
		why += ": " + r.Reason
	}
	if r.Returning {
		why += " (its unit has not returned to the sale yet)"
	}
	return why
}

func (o *adminClient) orderShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show ORDER",
		Short:   "Show one order with the payment provider's callbacks",
		Example: `  sluice order show 923417600000000123`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var r struct {
				client.AdminOrder
				Payments []adminhttp.Payment `json:"payments"`
			}
			return o.print(cmd.Context(), get(adminPath("orders", args[0])), &r, func(w io.Writer) {
				fields(w, "order", r.OrderID, "sale", r.SaleID, "buyer", r.Buyer, "status", r.Status,
					"created", r.CreatedAt, "changed", r.UpdatedAt, "pay by", r.PayBy, "payment", r.Reference,
					"cancelled", whyCancelled(r.AdminOrder))
				if len(r.Payments) > 0 {
					fmt.Fprintln(w)
					table(w, paymentHead, r.Payments, paymentCells)
				}
			})
		},
	}
}

func (o *adminClient) orderCancel() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:     "cancel ORDER...",
		Short:   "Cancel unpaid orders: return the unit to the sale and the slot to the buyer",
		Example: `  sluice order cancel 923417600000000123 --reason "requested by the buyer"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(id string) (string, error) {
				var r client.AdminOrder
				err := o.do(cmd.Context(), post(adminPath("orders", id, "cancel"), reason(why)), &r)
				if r.Returning {
					return "is cancelled; its unit returns to the sale when Redis responds", err
				}
				return "is cancelled", err
			})
		},
	}
	c.Flags().StringVar(&why, "reason", "", "reason, stored with the order")
	return c
}
