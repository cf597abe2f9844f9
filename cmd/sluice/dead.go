package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/admin/adminhttp"
	"sluice/backend/events"
	"sluice/client"
	"sluice/internal/plural"
)

// deadClient is an adminClient for the dead orders, or for the dead events of a group.
type deadClient struct {
	*adminClient
	group string // empty: dead orders
}

func (o *adminClient) deadCommand() *cobra.Command {
	d := &deadClient{adminClient: o}
	c := &cobra.Command{
		Use:   "dead",
		Short: "List orders that failed too often; retry or cancel them",
		Long: `A dead order was accepted, could not be written, and still holds its unit. retry requeues it. cancel
returns the unit to the sale and the slot to the buyer. With --group, retry runs an event again for
that group, and cancel drops it. Both take single orders or a filter; the action log keeps the actor
and the reason.`,
	}
	c.PersistentFlags().
		StringVar(&d.group, "group", "", "dead events of this group instead of dead orders; see sluice group")
	return o.adminCommand(c, d.deadList(), d.deadSettle(&cobra.Command{
		Use:   "retry [ORDER... | --sale S | --error-contains TEXT | --all]",
		Short: "Requeue dead orders",
		Example: `  sluice dead retry 923417600000000123
  sluice dead retry --error-contains deadlock --dry-run       # which orders those are
  sluice dead retry --error-contains deadlock --reason "the database is fixed"`,
	}, "retry", requeued), d.deadSettle(&cobra.Command{
		Use:   "cancel [ORDER... | --sale S | --error-contains TEXT | --all]",
		Short: "Cancel dead orders: return the unit to the sale and the slot to the buyer",
		Example: `  sluice dead cancel 923417600000000123 --reason "address cannot be served"
  sluice dead cancel --sale shoe --died-after 2h --reason "test orders"`,
	}, "cancel", became))
}

func (o *deadClient) deadList() *cobra.Command {
	var page pageFlags
	var sale string
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead orders, oldest first; --json includes the history and the message of each",
		Example: `  sluice dead list --sale shoe
  sluice dead list --json | jq -r '.dead[].reason' | sort | uniq -c
  sluice dead list --group points`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.group != "" && sale != "" {
				return usage("--sale selects dead orders, and --group lists dead events: use one of them")
			}
			if o.group != "" {
				r := page.request(adminPath("groups", o.group, "dead"), "after", page.after)
				return printList(cmd.Context(), o.adminClient, r, "EVENT\tDIED\tDELIVERIES\tREASON", eventCells)
			}
			r := page.request(adminPath("dead"), "after", page.after, "sale", sale)
			return printList(cmd.Context(), o.adminClient, r,
				"ORDER\tSALE\tBUYER\tDIED\tATTEMPTS\tCRASHES\tUNITS\tREASON", func(d client.DeadLetter) []any {
					return []any{d.Key, d.SaleID, d.Buyer, d.DiedAt, d.Attempts, d.Crashes, d.Units, whyDead(d)}
				})
		},
	}
	page.add(c)
	c.Flags().StringVar(&sale, "sale", "", "only of this sale")
	o.p.flags(c).filled("group", "sale")
	return c
}

func eventCells(d events.DeadLetter) []any {
	if d.Retrying {
		d.Reason += " (retry requested)"
	}
	return []any{d.EventID, d.DiedAt, d.Deliveries, d.Reason}
}

func whyDead(d client.DeadLetter) string {
	if d.Cancelling {
		return d.Reason + " (a cancel is in progress: repeat the cancel to finish it)"
	}
	return d.Reason
}

// deadFilter selects dead orders. It is the body of the request.
type deadFilter struct {
	Sale          string     `json:"sale,omitempty"`
	ErrorContains string     `json:"error_contains,omitempty"`
	DiedAfter     *time.Time `json:"died_after,omitempty"`
	DiedBefore    *time.Time `json:"died_before,omitempty"`
	All           bool       `json:"all,omitempty"`
	DryRun        bool       `json:"dry_run,omitempty"`
	Reason        string     `json:"reason,omitempty"`
	After         string     `json:"after,omitempty"`
}

// add declares the flags of the filter. Empty values are rejected, because the filter would select more dead letters.
func (f *deadFilter) add(flags *flagSet) {
	flags.StringVar(&f.Sale, "sale", "", "all of this sale, instead of single orders")
	flags.StringVar(&f.ErrorContains, "error-contains", "", "only dead letters whose error contains this text")
	flags.filled("sale", "error-contains")
	flags.since(&f.DiedAfter, "died-after", "only orders that died since: RFC 3339, or a duration ago, such as 2h")
	flags.since(&f.DiedBefore, "died-before",
		"only orders that died before: RFC 3339, or a duration ago (default: now)")
	flags.BoolVar(&f.All, "all", false, "all dead letters")
	flags.BoolVar(&f.DryRun, "dry-run", false, "only list the matching orders")
}

func (f *deadFilter) names() bool {
	return f.All || f.Sale != "" || f.ErrorContains != "" || f.DiedAfter != nil || f.DiedBefore != nil
}

// requeued describes the state of a dead order after a retry.
func requeued(s client.Settled) string {
	if s.Status == "queued" {
		return "is requeued"
	}
	return "is stored already (" + s.Status + "): nothing was requeued"
}

// became describes the state of a dead order after a cancel.
func became(s client.Settled) string {
	words := "is " + s.Status
	switch {
	case s.GivenBack:
		words += "; its unit is on sale again"
	case strings.HasPrefix(s.Key, "raw:"): // a message that is not an order
	case s.Status == "created" || s.Status == "paid":
		words += " and stays; only its dead letter is removed"
	default:
		words += "; it held no unit"
	}
	return words
}

func (o *deadClient) deadSettle(c *cobra.Command, verb string, became func(client.Settled) string) *cobra.Command {
	var f deadFilter
	reasonFlag(c, &f.Reason)
	flags := o.p.flags(c)
	flags.filled("group")
	f.add(flags)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.group != "" && (f.Sale != "" || f.ErrorContains != "" || f.DiedAfter != nil || f.DiedBefore != nil ||
			f.DryRun || f.All == (len(args) > 0)):
			return usage("with --group, name single events, or all with --all")
		case o.group != "":
			return o.settleEvents(cmd.Context(), verb, f.Reason, args, f.All)
		case f.names() == (len(args) > 0):
			return usage("name single orders, or select them with --sale, --error-contains, --died-after, --died-before " +
				"or --all")
		case len(args) > 0 && f.DryRun:
			return usage("--dry-run needs a filter")
		case len(args) == 0:
			return o.settleMany(cmd.Context(), verb, f)
		}
		return o.each(args, func(id string) (string, error) {
			var s client.Settled
			err := o.do(cmd.Context(), post(adminPath("dead", id, verb), reason(f.Reason)), &s)
			return became(s), err
		})
	}
	return c
}

// settledCells returns the cells of an order in a table. dryRun: nothing was cancelled, and the last column has the
// units that a cancel would return.
func settledCells(d adminhttp.SettledOrder, dryRun bool) []any {
	back := 0
	if d.GivenBack {
		back = 1
	} else if dryRun {
		back = d.Units
	}
	return []any{d.OrderID, d.SaleID, d.Buyer, d.Status, back, d.Reason, d.Error}
}

// settledAs are the results of the verbs. A cancel may also keep an order that is in the database, or drop a message.
var settledAs = map[string]string{"retry": "requeued", "cancel": "settled"}

// settleMany settles the selected orders page by page. It skips orders that die after it began, by the clock of the
// backend: otherwise a retry of orders that fail again would not end.
func (o *deadClient) settleMany(ctx context.Context, verb string, f deadFilter) error {
	all := adminhttp.SettledPage{DryRun: f.DryRun, Orders: []adminhttp.SettledOrder{}}
	var stopped error
	status, begun := o.p.status(), time.Now().UTC()
	for {
		page := adminhttp.SettledPage{DiedBefore: *cmp.Or(f.DiedBefore, &begun)} // older backends return none
		if stopped = o.do(ctx, post(adminPath("dead", verb), f), &page); stopped != nil {
			break
		}
		all.Done, all.Failed, all.Orders = all.Done+page.Done, all.Failed+page.Failed, append(all.Orders, page.Orders...)
		all.Unavailable = append(all.Unavailable, page.Unavailable...)
		f.DiedBefore, all.DiedBefore = &page.DiedBefore, page.DiedBefore
		if f.After = page.Next; f.After == "" {
			break
		}
		checked := all.Done + all.Failed
		status.show(fmt.Sprintf("%d dead orders checked that died before %s", checked, cell(f.DiedBefore)))
	}
	status.done()
	if _, unsent := errors.AsType[usageError](stopped); unsent && len(all.Orders) == 0 {
		return stopped
	}
	missing := len(all.Unavailable) > 0
	if f.Sale != "" && stopped == nil && all.Done+all.Failed == 0 && !missing { // the sale may be misspelled
		if err := o.requireSale(ctx, f.Sale); err != nil {
			return err
		}
	}
	err := o.p.show(all, func(w io.Writer) {
		table(w, "ORDER\tSALE\tBUYER\tSTATUS\tUNITS BACK\tDIED BECAUSE\t", all.Orders,
			func(d adminhttp.SettledOrder) []any { return settledCells(d, f.DryRun && verb == "cancel") })
		if f.DryRun {
			fmt.Fprintf(w, "%s; without --dry-run: %s\n", plural.Count(all.Done, "order"), verb)
		} else {
			fmt.Fprintf(w, "%d %s, %d failed\n", all.Done, settledAs[verb], all.Failed)
		}
	})
	switch {
	case err != nil:
		return err
	case stopped != nil:
		return fmt.Errorf("stopped: repeat the command to continue: %w", stopped)
	case missing:
		return fmt.Errorf("the dead orders of %s were not checked: repeat the command when sluice shard list shows no error",
			plural.Named("shard", all.Unavailable))
	case all.Failed > 0:
		return fmt.Errorf("%s could not be %s", plural.Count(all.Failed, "order"), settledAs[verb])
	}
	return nil
}

// settleEvents retries or cancels dead events of the group: the named ones, or all.
func (o *deadClient) settleEvents(ctx context.Context, verb, why string, ids []string, all bool) error {
	if all { // the present ones: events that die again meanwhile are skipped
		flags, page := pageFlags{limit: 1000}, listing[events.DeadLetter]{name: "dead"}
		for more := true; more; more = page.next != "" {
			if err := o.do(ctx, flags.request(adminPath("groups", o.group, "dead"), "after", page.next), &page); err != nil {
				return err
			}
			for _, d := range page.items {
				ids = append(ids, d.EventID)
			}
		}
	}
	became := map[string]string{"retry": "retried", "cancel": "dropped"}[verb]
	done := 0
	err := o.each(ids, func(id string) (string, error) {
		err := o.do(ctx, post(adminPath("groups", o.group, "dead", id, verb), reason(why)), nil)
		if all && problemStatus(err) == http.StatusNotFound { // since the list was read
			return "was settled by another request", nil
		}
		done++
		return "is " + became, err
	})
	if all && err == nil && !o.p.json {
		fmt.Fprintf(o.p.out, "%s %s\n", plural.Count(done, "event"), became)
	}
	return err
}
