package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"sluice/client"
)

type paymentJSON struct {
	Payment   string       `json:"payment"`
	At        time.Time    `json:"at"`
	OrderID   string       `json:"order_id"`
	SaleID    string       `json:"sale_id"`
	Event     string       `json:"event"`
	Price     client.Price `json:"price"`
	Reference string       `json:"reference"`
	Outcome   string       `json:"outcome"`
	Refund    bool         `json:"refund"`
	SettledAt *time.Time   `json:"settled_at"`
	SettledBy string       `json:"settled_by"`
	Note      string       `json:"note"`
}

// left describes whether a refund is due.
func (p paymentJSON) left() string {
	switch {
	case !p.Refund:
		return ""
	case p.SettledAt == nil:
		return "give it back"
	}
	return "given back by " + p.SettledBy + ": " + p.Note
}

func (p *program) paymentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "payment",
		Short: "List payments and settle refunds",
		Long: `sluice keeps every callback of the payment provider with its outcome. Payments without an order (a
cancelled order, a wrong price, a second payment) are listed as refunds due until an admin settles
them.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := p.adminFlags(c)
	c.AddCommand(o.paymentList(), o.paymentSettle())
	return c
}

func (o *adminClient) paymentList() *cobra.Command {
	var page pageFlags
	var all bool
	var orderID string
	c := &cobra.Command{
		Use:   "list",
		Short: "List payments with a refund due, oldest first",
		Example: `  sluice payment list                   what has to be given back
  sluice payment list --all --sale shoe`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			refund := "open"
			if all {
				refund = ""
			}
			var answer struct {
				Payments []paymentJSON `json:"payments"`
				Next     string        `json:"next"`
			}
			raw, err := o.get(cmd.Context(), "/admin/v1/payments?"+page.query("refund", refund, "order", orderID), &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				printPayments(w, answer.Payments)
				more(w, answer.Next)
			})
		},
	}
	page.add(c)
	c.Flags().BoolVar(&all, "all", false, "those that were taken or given back, too")
	c.Flags().StringVar(&orderID, "order", "", "only of this order")
	return c
}

func printPayments(w io.Writer, payments []paymentJSON) {
	table(w, "PAYMENT\tAT\tORDER\tPRICE\tREFERENCE\tOUTCOME\tTO DO", func(t io.Writer) {
		for _, p := range payments {
			fmt.Fprintf(
				t,
				"%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				p.Payment,
				stamp(&p.At),
				p.OrderID,
				priceText(p.Price),
				p.Reference,
				p.Outcome,
				p.left(),
			)
		}
	})
}

func (o *adminClient) paymentSettle() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use:     "settle PAYMENT...",
		Short:   "Mark refunds as paid",
		Example: `  sluice payment settle 17 --note "refund re_1 at the provider"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(number string) (string, error) {
				path := "/admin/v1/payments/" + url.PathEscape(number) + "/settle"
				return "is settled", o.call(cmd.Context(), http.MethodPost, path, map[string]string{"note": note}, nil)
			})
		},
	}
	c.Flags().StringVar(&note, "note", "", "how; it is kept with the payment")
	return c
}
