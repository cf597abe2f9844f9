package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/client"
)

// orderDetail is an order with the provider's callbacks; a list omits them.
type orderDetail struct {
	client.AdminOrder
	Payments []paymentJSON `json:"payments"`
}

func (p *program) orderCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "order",
		Short: "List orders in the database; cancel unpaid ones",
		Long: `An order in the database is created, paid or cancelled. Cancelling returns its unit to the sale and
the slot to the buyer. Orders that could not be written are dead letters: see "sluice dead".`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := p.adminFlags(c)
	c.AddCommand(o.orderList(), o.orderShow(), o.orderCancel())
	return c
}

// pageFlags are the flags of a list.
type pageFlags struct {
	sale, after string
	limit       int
}

func (f *pageFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.sale, "sale", "", "only of this sale")
	c.Flags().StringVar(&f.after, "after", "", "where the page before ended")
	c.Flags().IntVar(&f.limit, "limit", 100, "how many at most")
}

// query is the query of a list; more holds names and values in turn. What is empty is left out.
func (f *pageFlags) query(more ...string) string {
	q := url.Values{"limit": {strconv.Itoa(f.limit)}}
	pairs := append([]string{"sale", f.sale, "after", f.after}, more...)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q.Encode()
}

func (o *adminClient) orderList() *cobra.Command {
	var page pageFlags
	var status string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List orders, oldest first",
		Example: `  sluice order list --sale shoe --status cancelled`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Orders []client.AdminOrder `json:"orders"`
				Next   string              `json:"next"`
			}
			raw, err := o.get(cmd.Context(), "/admin/v1/orders?"+page.query("status", status), &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "ORDER\tSALE\tBUYER\tSTATUS\tCREATED\tPAY BY\tWHY CANCELLED", func(t io.Writer) {
					for _, r := range answer.Orders {
						fmt.Fprintf(
							t,
							"%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
							r.OrderID,
							r.SaleID,
							r.Buyer,
							r.Status,
							stamp(&r.CreatedAt),
							stamp(r.PayBy),
							whyCancelled(r),
						)
					}
				})
				more(w, answer.Next)
			})
		},
	}
	page.add(c)
	c.Flags().StringVar(&status, "status", "", "only created, paid or cancelled ones")
	oneOf(c, "status", "created", "paid", "cancelled")
	return c
}

func whyCancelled(r client.AdminOrder) string {
	if r.CancelledBy == "" {
		return ""
	}
	why := r.CancelledBy + ": " + r.Reason
	if r.Returning {
		why += " (its unit is on its way back)"
	}
	return why
}

func stamp(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

func more(w io.Writer, next string) {
	if next != "" {
		fmt.Fprintf(w, "more: --after %s\n", next)
	}
}

func orderPath(id string) string { return "/admin/v1/orders/" + url.PathEscape(id) }

func (o *adminClient) orderShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show ORDER",
		Short:   "Show one order with the payment provider's callbacks",
		Example: `  sluice order show 923417600000000123`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r orderDetail
			raw, err := o.get(cmd.Context(), orderPath(args[0]), &r)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) { printOrder(w, r) })
		},
	}
}

func printOrder(w io.Writer, r orderDetail) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"order", r.OrderID}, {"sale", r.SaleID}, {"buyer", r.Buyer}, {"status", string(r.Status)},
		{"created", stamp(&r.CreatedAt)}, {"changed", stamp(&r.UpdatedAt)},
		{"pay by", stamp(r.PayBy)}, {"payment", r.Reference}, {"cancelled", whyCancelled(r.AdminOrder)},
	} {
		if line[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", line[0], line[1])
		}
	}
	t.Flush()
	if len(r.Payments) > 0 {
		fmt.Fprintln(w)
		printPayments(w, r.Payments)
	}
}

func (o *adminClient) orderCancel() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:     "cancel ORDER...",
		Short:   "Cancel unpaid orders: return the unit to the sale and the slot to the buyer",
		Example: `  sluice order cancel 923417600000000123 --reason "requested by the buyer"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(id string) (string, error) {
				var r client.AdminOrder
				err := o.call(cmd.Context(), http.MethodPost, orderPath(id)+"/cancel", map[string]string{"reason": reason}, &r)
				if r.Returning {
					return "is cancelled; its unit goes back on sale as soon as Redis answers", err
				}
				return "is cancelled", err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why; it is kept with the order")
	return c
}
