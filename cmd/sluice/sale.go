package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice/backend/sale"
	"sluice/client"
	"sluice/internal/reload"
)

func (o *adminClient) saleCommand() *cobra.Command {
	return o.adminCommand(
		&cobra.Command{Use: "sale", Short: "Create, show and change sales"},
		o.saleCreate(), o.saleList(), o.saleShow(), o.saleAudit(), o.saleRebuild(), o.saleRestock(), o.saleDescribe(),
		o.saleSwitch("pause", "Pause a sale: purchases are rejected until it is resumed"),
		o.saleSwitch("resume", "Resume a paused sale"),
		o.saleSwitch("open", "Open a scheduled sale now; a paused one stays paused until resume"),
		o.saleClose(), o.saleArchive())
}

func (o *adminClient) saleCreate() *cobra.Command {
	var s client.NewSale
	var price, opens, closes string
	c := &cobra.Command{
		Use:   "create --title T --stock N --price 19.99EUR",
		Short: "Create a sale and load it into Redis",
		Example: `  sluice sale create --id shoe --title "The shoe" --stock 1000 --price 99.90EUR --opens 2036-12-01T10:00:00Z
  sluice sale create --title Voucher --stock 50 --price 0EUR --opens 5m --closes 1h
  sluice sale create --title Ticket --stock 500 --price 40EUR --hold 15m     # cancel orders not paid in 15 minutes
  sluice sale create --title Drop --stock 1000000 --price 9EUR --spread 8    # in 8 shards: the servers run with --shards 8 or more`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || s.ID != "" || sale.ValidateID(args[0]) != nil {
				return checkArgs(cmd, args)
			}
			return usage("unexpected argument %q: use --id %s, or quotes around a title of several words", args[0], args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.ID = cmp.Or(s.ID, sale.NewID()) // generated here, so that a repeated request creates no second sale
			err := o.sale(cmd.Context(), post(adminPath("sales"), s))
			if problemStatus(err) == http.StatusConflict {
				return fmt.Errorf("sale %s exists already with other values, or was opened early or described since: "+
					"see sluice sale show %s, or choose another --id", s.ID, s.ID)
			}
			if !mayBeDone(err) {
				return err
			}
			same := "--id " + s.ID
			if isDuration(opens) {
				same += " --opens " + s.OpensAt.Format(time.RFC3339Nano)
			}
			if isDuration(closes) {
				same += " --closes " + s.ClosesAt.Format(time.RFC3339Nano)
			}
			return fmt.Errorf("%w (to repeat it without creating a second sale: %s)", err, same)
		},
	}
	f := o.p.flags(c)
	f.StringVar(&s.ID, "id", "", "name of the sale in URLs: letters, digits, '.', '_', '-' (default: generated)")
	f.StringVar(&s.Title, "title", "", "title that buyers see")
	f.Int64Var(&s.Stock, "stock", 0, "units on sale")
	f.number(&s.PerBuyer, "per-buyer", "", 1, 1, 0, "units that one buyer may hold") // the API takes 0 for 1
	f.number(&s.Spread, "spread", "", 1, 1, 1000, "number of shards that sell this sale together; it never changes")
	f.StringVar(&price, "price", "", "amount and currency, such as 19.99EUR")
	f.StringVar(&opens, "opens", "0s", "opening time: RFC 3339, or a duration from now")
	f.DurationVar(&s.Hold, "hold", 0,
		"time after which an unpaid order is cancelled and its unit is sold again, such as 15m (default: no limit)")
	f.StringVar(&closes, "closes", "", "closing time: RFC 3339, or a duration from now (default: never)")
	f.details(&s.Details)
	f.filled("id", "closes")
	f.check(func(bad *problems) {
		if s.Title == "" {
			bad.add("--title is missing: want the title for buyers, such as --title Shoe")
		}
		if !f.Changed("stock") {
			bad.add("--stock is missing: want the number of units")
		}
		var err error
		now := time.Now()
		s.Price, err = parsePrice(price)
		bad.check("--price", err)
		s.OpensAt, err = parseWhen(opens, now)
		bad.check("--opens", err)
		if closes != "" {
			at, err := parseWhen(closes, now)
			bad.check("--closes", err)
			s.ClosesAt = &at
		}
	})
	return c
}

func (o *adminClient) saleList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the sales that are not archived",
		Example: `  sluice sale list
  sluice sale list --json | jq -r '.sales[] | select(.state == "open") | .id'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd.Context(), o, get(adminPath("sales")), "ID\tSTATE\tLEFT\tSTOCK\tOPENS\tTITLE",
				func(s client.AdminSale) []any { return []any{s.ID, s.State, s.Left, s.Stock, s.OpensAt, s.Title} })
		},
	}
}

func (o *adminClient) saleShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show SALE",
		Short:   "Show one sale",
		Example: `  sluice sale show shoe`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.sale(cmd.Context(), get(adminPath("sales", args[0])))
		},
	}
}

func (o *adminClient) saleSwitch(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " SALE",
		Short:   short,
		Example: "  sluice sale " + verb + " shoe",
		RunE: func(cmd *cobra.Command, args []string) error {
			warn := func() {}
			if verb == "resume" {
				warn = o.unbalancedWarning(cmd.Context(), args[0])
			}
			var s client.AdminSale
			err := o.printSale(cmd.Context(), post(adminPath("sales", args[0], verb), struct{}{}), &s)
			switch {
			case problemStatus(err) == http.StatusConflict:
				return fmt.Errorf("%s: %w", args[0], err)
			case err == nil && verb == "open" && s.State == client.Paused:
				fmt.Fprintf(o.p.errOut, "warning: sale %s is paused and sells nothing: run sluice sale resume %[1]s\n", args[0])
			case err == nil:
				warn()
			}
			return err
		},
	}
}

func (o *adminClient) saleClose() *cobra.Command {
	return o.confirmed(&cobra.Command{
		Use:        "close SALE",
		SuggestFor: []string{"remove", "delete", "rm", "stop", "end", "cancel"},
		Short:      "Close the sale permanently; prompts for the id of the sale, unless --yes is set",
		Example: `  sluice sale close shoe
  sluice sale close shoe --yes     # in a script`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.sale(cmd.Context(), post(adminPath("sales", args[0], "close"), struct{}{}))
		},
	}, "close", func(ctx context.Context, id string) (string, error) {
		return "Closing " + id + " is permanent.", o.requireSale(ctx, id)
	})
}

func (o *adminClient) saleRestock() *cobra.Command {
	var add int64
	var key string
	c := &cobra.Command{
		Use:   "restock SALE --add N",
		Short: "Add units to a sale, also while it runs",
		Example: `  sluice sale restock shoe --add 100
  sluice sale restock shoe --add 100 --key second-delivery     # adds them once, however often it is repeated`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := post(adminPath("sales", args[0], "restock"), map[string]int64{"add": add})
			request.Key = cmp.Or(key, rand.Text())
			var before, after client.AdminSale
			if key != "" { // an error is ignored: the restock then returns it as well
				_ = o.do(cmd.Context(), get(adminPath("sales", args[0])), &before)
			}
			err := o.printSale(cmd.Context(), request, &after)
			if err == nil && before.Stock == after.Stock { // a stock never decreases
				fmt.Fprintf(o.p.errOut, "nothing was added: --key %s was used for this before\n", key)
			}
			if mayBeDone(err) {
				return fmt.Errorf("%w (to repeat it without adding twice: --key %s)", err, request.Key)
			}
			if p, answered := errors.AsType[*client.Problem](err); answered && p.Status == http.StatusConflict {
				return clearer{strings.ReplaceAll(p.Error(), "Idempotency-Key", "--key"), p}
			}
			return err
		},
	}
	f := o.p.flags(c)
	f.Int64Var(&add, "add", 0, "units to add")
	f.check(func(bad *problems) {
		switch {
		case !f.Changed("add"):
			bad.add("--add is missing: want the number of units")
		case add < 1:
			bad.add("--add must be at least 1")
		}
		if len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			bad.add("--key %q: want at most 255 printable ASCII characters", key)
		}
	})
	f.filled("key")
	f.StringVar(&key, "key", "", "idempotency key: a restock with a used key adds nothing (default: a new key)")
	return c
}

func (o *adminClient) saleDescribe() *cobra.Command {
	var to client.Details
	c := &cobra.Command{
		Use:   "describe SALE",
		Short: "Replace the picture and the description of a sale",
		Example: `  sluice sale describe shoe --picture https://shop.example/shoe.jpg --description shoe.md
  sluice sale describe shoe     # remove both`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.sale(cmd.Context(), post(adminPath("sales", args[0], "describe"), to))
		},
	}
	f := o.p.flags(c)
	f.details(&to)
	return c
}

// details declares the flags of the picture and the description of a sale.
func (f *flagSet) details(to *client.Details) {
	var file string
	f.StringVar(&to.Picture, "picture", "", "URL of an image for the page, https://shop.example/shoe.jpg (default: none)")
	f.StringVar(&file, "description", "", "Markdown file with the description for the page, "+
		"at most 8000 bytes (default: none)")
	f.filled("picture", "description")
	f.check(func(bad *problems) {
		if file != "" {
			text, err := reload.ReadFile(file, sale.MaxDescriptionLen)
			if err == nil && !utf8.Valid(text) {
				err = fmt.Errorf("%s is not UTF-8 text: convert it", file)
			}
			bad.check("--description", err)
			to.Description = strings.TrimPrefix(string(text), "\ufeff") // some editors begin a file with it
		}
	})
}

// requireSale returns an error if the server reports that a sale does not exist. If the sale is archived, it prints the
// command that lists the files.
func (o *adminClient) requireSale(ctx context.Context, id string) error {
	var s client.AdminSale
	err := o.do(ctx, get(adminPath("sales", id)), &s)
	if problemStatus(err) == http.StatusNotFound {
		return err
	}
	if s.Archive != nil {
		fmt.Fprintf(o.p.errOut, "sale %s is archived: sluice sale show %s lists the files with its orders\n", id, id)
	}
	return nil
}

// sale sends a request that returns the sale, and prints it.
func (o *adminClient) sale(ctx context.Context, r client.Request) error {
	return o.printSale(ctx, r, &client.AdminSale{})
}

// printSale is sale, and decodes the sale into s.
func (o *adminClient) printSale(ctx context.Context, r client.Request, s *client.AdminSale) error {
	return o.print(ctx, r, s, func(w io.Writer) {
		if s.Hold == "0s" {
			s.Hold = ""
		}
		drain := ""
		if s.DrainSeconds != nil {
			drain = cell(seconds(*s.DrainSeconds))
		} else if r.Method == http.MethodGet { // other responses do not contain it
			drain = "? (see sluice queue)"
		}
		state, left := string(s.State), cell(s.Left)
		if s.Archive != nil { // it is neither in Redis nor in the queue
			state, left, drain = state+", archived", "", ""
		}
		segments := ""
		if s.Spread > 1 {
			segments = fmt.Sprintf("%d, of which Redis holds %d", s.Spread, len(s.Segments))
		}
		fields(w, "id", s.ID, "title", s.Title, "price", s.Price, "state", state, "stock", s.Stock, "left", left,
			"sold", s.Sold, "per buyer", s.PerBuyer, "opens", s.OpensAt, "hold", s.Hold, "closes", s.ClosesAt,
			"picture", s.Picture, "description", firstLine(s.Description), "paused by", s.PausedBy, "in SQL within", drain,
			"segments", segments)
		if len(s.Segments) > 0 {
			fmt.Fprintln(w)
			table(w, "SEGMENT\tSHARD\tUNITS\tLEFT\tOUT\tACCEPTED", s.Segments, func(g client.Segment) []any {
				return []any{g.Segment, g.Shard, g.Units, g.Left, g.Out, g.Accepted}
			})
		}
		if a := s.Archive; a != nil {
			fmt.Fprintln(w)
			fields(w, "archived", a.EndedAt, "orders", a.Orders, "paid", a.Paid, "cancelled", a.Cancelled, "revenue", a.Revenue,
				"files", strings.Join(a.Files, ", "))
		}
	})
}

func firstLine(text string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if first = strings.TrimSpace(first); rest != "" {
		return first + " …"
	}
	return first
}
