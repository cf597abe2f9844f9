package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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

func (p *program) saleCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sale",
		Short: "Create, show and change sales",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := p.adminFlags(c)
	c.AddCommand(
		o.saleCreate(),
		o.saleList(),
		o.completesSale(o.saleShow()),
		o.completesSale(o.saleAudit()),
		o.completesSale(o.saleRebuild()),
		o.completesSale(o.saleRestock()),
		o.completesSale(o.saleSwitch("pause", "Stop accepting orders until resume")),
		o.completesSale(o.saleSwitch("resume", "Accept orders again")),
		o.completesSale(o.saleSwitch("open", "Open a sale now that was to open later")),
		o.completesSale(o.saleSwitch("close", "Close the sale permanently")),
	)
	return c
}

func (o *adminClient) saleCreate() *cobra.Command {
	var s client.NewSale
	var price, opens, closes string
	c := &cobra.Command{
		Use:   "create --title T --stock N --price 19.99EUR",
		Short: "Create a sale and load it into Redis",
		Example: `  sluice sale create --id shoe --title "The shoe" --stock 1000 --price 99.90EUR --opens 2026-12-01T10:00:00Z
  sluice sale create --title Voucher --stock 50 --price 0EUR --opens 5m --closes 1h
  sluice sale create --title Ticket --stock 500 --price 40EUR --hold 15m     cancel orders not paid in 15 minutes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var bad problems
			var err error
			now := time.Now()
			if s.Price, err = parsePrice(price); err != nil {
				bad.add("--price: %v", err)
			}
			if s.OpensAt, err = parseWhen(opens, now); err != nil {
				bad.add("--opens: %v", err)
			}
			if closes != "" {
				at, err := parseWhen(closes, now)
				if err != nil {
					bad.add("--closes: %v", err)
				}
				s.ClosesAt = &at
			}
			if s.PerBuyer < 1 { // the API's default is 1
				bad.add("--per-buyer must be at least 1")
			}
			if err := bad.err(); err != nil {
				return err
			}
			return o.sale(cmd.Context(), client.Request{Method: http.MethodPost, Path: "/admin/v1/sales", Body: s})
		},
	}
	f := c.Flags()
	f.StringVar(&s.ID, "id", "", "name of the sale in URLs: letters, digits, '.', '_', '-' (default: one is made)")
	f.StringVar(&s.Title, "title", "", "what buyers read")
	f.Int64Var(&s.Stock, "stock", 0, "units on sale")
	f.IntVar(&s.PerBuyer, "per-buyer", 1, "units one buyer may hold")
	f.StringVar(&price, "price", "", "amount and currency, such as 19.99EUR")
	f.StringVar(&opens, "opens", "0s", "when it opens: RFC 3339, or how long from now")
	f.DurationVar(
		&s.Hold,
		"hold",
		0,
		"how long an order may stay unpaid before it is cancelled and its unit sold again, such as 15m (default: for ever)",
	)
	f.StringVar(&closes, "closes", "", "when it closes: RFC 3339, or how long from now (default: never)")
	return c
}

func (o *adminClient) saleList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the sales",
		Example: `  sluice sale list
  sluice sale list --json | jq -r '.sales[] | select(.state == "open") | .id'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Sales []client.AdminSale `json:"sales"`
			}
			raw, err := o.get(cmd.Context(), "/admin/v1/sales", &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "ID\tSTATE\tLEFT\tSTOCK\tOPENS\tTITLE", func(t io.Writer) {
					for _, s := range answer.Sales {
						fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", s.ID, s.State, count(s.Left), s.Stock, stamp(&s.OpensAt), s.Title)
					}
				})
			})
		},
	}
}

func (o *adminClient) saleShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show SALE",
		Short:   "Show one sale",
		Example: `  sluice sale show shoe`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.sale(cmd.Context(), client.Request{Method: http.MethodGet, Path: salePath(args[0])})
		},
	}
}

func (o *adminClient) saleSwitch(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " SALE",
		Short:   short,
		Example: "  sluice sale " + verb + " shoe",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.sale(
				cmd.Context(),
				client.Request{Method: http.MethodPost, Path: salePath(args[0]) + "/" + verb, Body: struct{}{}},
			)
		},
	}
}

func (o *adminClient) saleRestock() *cobra.Command {
	var add int64
	var key string
	c := &cobra.Command{
		Use:   "restock SALE --add N",
		Short: "Add units to a sale, also while it runs",
		Example: `  sluice sale restock shoe --add 100
  sluice sale restock shoe --add 100 --key second-delivery     adds them once, however often it is repeated`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if add < 1 {
				return usage("--add must be at least 1")
			}
			if key == "" {
				key = rand.Text()
			}
			err := o.sale(
				cmd.Context(),
				client.Request{
					Method: http.MethodPost,
					Path:   salePath(args[0]) + "/restock",
					Body:   map[string]int64{"add": add},
					Key:    key,
				},
			)
			if p, answered := errors.AsType[*client.Problem](
				err,
			); err != nil &&
				(!answered || p.Status >= http.StatusInternalServerError) { // it may have been done
				return fmt.Errorf("%w (to repeat it without adding twice: --key %s)", err, key)
			}
			return err
		},
	}
	c.Flags().Int64Var(&add, "add", 0, "units to add")
	c.Flags().StringVar(&key, "key", "", "names this restock: the same name again adds nothing (default: a new name)")
	return c
}

func (o *adminClient) saleAudit() *cobra.Command {
	return &cobra.Command{
		Use:   "audit SALE",
		Short: "Audit a sale: count every unit, exit 1 if it does not balance",
		Example: `  sluice sale audit shoe
  sluice sale audit shoe --json | jq .balanced`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r client.Audit
			done := o.p.waiting("counting every unit of " + args[0])
			raw, err := o.get(cmd.Context(), salePath(args[0])+"/audit", &r)
			done()
			if err != nil {
				return err
			}
			err = o.show(raw, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
				for _, row := range []struct {
					name string
					n    int64
				}{{"left", r.Left}, {"ready", r.Ready}, {"delayed", r.Delayed}, {"leased", r.Leased}, {"ordered", r.Ordered}, {"dead", r.Dead}, {"stock", r.Stock}} {
					fmt.Fprintf(t, "%s\t%d\t\n", row.name, row.n)
				}
				t.Flush()
				if r.Returning > 0 {
					fmt.Fprintf(w, "%d of the ordered are cancelled, and their units on the way back\n", r.Returning)
				}
				if r.Balanced {
					fmt.Fprintln(w, "balanced")
				}
				if r.Unbacked > 0 {
					fmt.Fprintf(
						w,
						"besides, %d dead orders hold no unit: Redis had lost them, and their units were sold again\n",
						r.Unbacked,
					)
				}
				for _, d := range r.Differences {
					fmt.Fprintln(w, d)
				}
				for _, d := range r.Orders {
					fmt.Fprintf(w, "order %s of %q: %s, and %s\n", d.OrderID, d.Buyer, d.Found, d.Missing)
				}
			})
			if err == nil && !r.Balanced {
				err = fmt.Errorf("sale %s does not balance", args[0])
			}
			return err
		},
	}
}

// sale sends a request that returns the sale, and prints it.
func (o *adminClient) sale(ctx context.Context, r client.Request) error {
	var raw json.RawMessage
	if err := o.do(ctx, r, &raw); err != nil {
		return err
	}
	var s client.AdminSale
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("%s does not answer as a sluice: %w", o.base, err)
	}
	return o.show(raw, func(w io.Writer) { printSale(w, s) })
}

func salePath(id string) string { return "/admin/v1/sales/" + url.PathEscape(id) }

func printSale(w io.Writer, s client.AdminSale) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(
		t,
		"id\t%s\ntitle\t%s\nprice\t%s\nstate\t%s\nstock\t%d\nleft\t%s\n",
		s.ID,
		s.Title,
		priceText(s.Price),
		s.State,
		s.Stock,
		count(s.Left),
	)
	fmt.Fprintf(t, "sold\t%d\nper buyer\t%d\nopens\t%s\n", s.Sold, s.PerBuyer, s.OpensAt.UTC().Format(time.RFC3339))
	if s.Hold != "" && s.Hold != "0s" {
		fmt.Fprintf(t, "hold\t%s\n", s.Hold)
	}
	if s.ClosesAt != nil {
		fmt.Fprintf(t, "closes\t%s\n", s.ClosesAt.UTC().Format(time.RFC3339))
	}
	if s.PausedBy != "" {
		fmt.Fprintf(t, "paused by\t%s\n", s.PausedBy)
	}
	if s.DrainSeconds != nil {
		fmt.Fprintf(t, "in SQL within\t%s\n", span(s.DrainSeconds))
	}
	t.Flush()
}

func count(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}

// parseWhen reads a time, or a duration from now.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d).UTC().Truncate(time.Millisecond), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q: want a time such as 2026-12-01T10:00:00Z, or a duration such as 5m", s)
	}
	return t, nil
}
