package main

import (
	"github.com/spf13/cobra"

	"sluice/backend/admin/adminhttp"
)

func refundState(p adminhttp.Payment) string {
	switch {
	case !p.Refund:
		return ""
	case p.SettledAt == nil:
		return "refund"
	}
	return "refunded by " + p.SettledBy + ": " + p.Note
}

func paymentCells(p adminhttp.Payment) []any {
	return []any{p.Number, p.At, p.OrderID, p.Price, p.Reference, p.Outcome, refundState(p)}
}

const paymentHead = "PAYMENT\tAT\tORDER\tAMOUNT\tREFERENCE\tOUTCOME\tTO DO"

func (o *adminClient) paymentCommand() *cobra.Command {
	return o.adminCommand(&cobra.Command{
		Use:   "payment",
		Short: "List payments and settle refunds",
		Long: `sluice keeps every callback of the payment provider with its outcome. Payments without an order (a
cancelled order, a wrong price, a second payment) are listed as refunds due until an admin settles
them.`,
	}, o.paymentList(), o.paymentSettle())
}

func (o *adminClient) paymentList() *cobra.Command {
	var page pageFlags
	var all bool
	var sale, order string
	c := &cobra.Command{
		Use:   "list",
		Short: "List payments with a refund due, oldest first",
		Example: `  sluice payment list                   # refunds due
  sluice payment list --all --sale shoe`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			refund := "open"
			if all {
				refund = ""
			}
			r := page.request(adminPath("payments"), "after", page.after, "sale", sale, "refund", refund, "order", order)
			return printList(cmd.Context(), o, r, paymentHead, paymentCells)
		},
	}
	page.add(c)
	f := o.p.flags(c)
	f.StringVar(&sale, "sale", "", "only of this sale")
	f.BoolVar(&all, "all", false, "include accepted and refunded payments")
	f.StringVar(&order, "order", "", "only of this order")
	f.filled("sale", "order")
	return c
}

func (o *adminClient) paymentSettle() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:     "settle PAYMENT...",
		Short:   "Mark refunds as paid",
		Example: `  sluice payment settle 17 --note "refund re_1 at the provider"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{"note": note}
			return o.postEach(cmd.Context(), args, "is settled", body, func(number string) string {
				return adminPath("payments", number, "settle")
			})
		},
	}
	c.Flags().StringVar(&note, "note", "", "how it was settled; stored with the payment")
	return c
}
