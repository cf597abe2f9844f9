package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/admin/adminhttp"
	"sluice/backend/events/webhook"
	"sluice/client"
	"sluice/internal/loop"
)

func (o *adminClient) webhookCommand() *cobra.Command {
	return o.adminCommand(&cobra.Command{
		Use:   "webhook",
		Short: "Notify other systems of orders by signed HTTP POSTs: endpoints and deliveries",
		Long: `sluice posts every selected order event (created, paid, cancelled) to each endpoint, signed as
Standard Webhooks specifies, and retries for 29 to 35 hours until the endpoint answers 2xx. See
docs/webhooks.md.`,
	},
		o.webhookAdd(), o.webhookList(), o.webhookShow(), o.webhookChange(),
		o.webhookPost("pause", "Pause endpoints; deliveries wait until a resume", "the shop moves tonight"),
		o.webhookPost("resume", "Resume endpoints, also disabled ones and those held after failures", "the shop has moved"),
		o.webhookRotate(), o.webhookRemove(), o.webhookPing(), o.webhookDeliveries(), o.webhookRedeliver())
}

// stateText returns the state of an endpoint for display.
func stateText(e client.Endpoint) string {
	if e.State == "active" && e.FailingSince != nil {
		return "failing"
	}
	return e.State
}

// webhookFlagsOf declares the settings of an endpoint as flags.
func webhookFlagsOf(c *cobra.Command, title *string, types, sales *[]string, why *string) {
	f := c.Flags()
	f.StringVar(title, "title", "", "description")
	f.StringSliceVar(types, "type", nil, "order.created, order.paid or order.cancelled; repeatable (default: all)")
	f.StringSliceVar(sales, "sale", nil, "only of this sale; repeatable (default: all)")
	reasonFlag(c, why)
}

func (o *adminClient) webhookAdd() *cobra.Command {
	var title, why string
	var types, sales []string
	var strict bool
	c := &cobra.Command{
		Use:     "add URL",
		Short:   "Create an endpoint; its secret is shown only once",
		Example: `  sluice webhook add https://shop.example/hooks/sluice --type order.paid --type order.cancelled --sale shoe`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{
				"url": args[0], "title": title, "strict": strict, "reason": why,
				"types": append([]string{}, types...), "sales": append([]string{}, sales...),
			}
			var made client.Endpoint
			err := o.print(cmd.Context(), post(adminPath("webhooks"), body), &made, func(w io.Writer) {
				fmt.Fprintf(w, "%s is created. Its secret is shown only once:\n\n  %s\n", made.ID, made.Secret)
			})
			if err != nil {
				return err
			}
			o.warnOfUnknownSales(cmd.Context(), sales)
			return nil
		},
	}
	webhookFlagsOf(c, &title, &types, &sales, &why)
	o.p.flags(c).filled("type", "sale")
	c.Flags().BoolVar(&strict, "strict", false,
		"send one delivery at a time, in the order of all events (default: in order per order)")
	return c
}

// warnOfUnknownSales prints a warning for each sale of an endpoint that does not exist: it is misspelled, or created
// later.
func (o *adminClient) warnOfUnknownSales(ctx context.Context, sales []string) {
	for _, id := range sales {
		if o.requireSale(ctx, id) != nil {
			fmt.Fprintln(o.p.errOut, visible(fmt.Sprintf(
				"warning: %s; the endpoint receives no event of it until it is created", noSuch("sales", id))))
		}
	}
}

// deliveryCount is a number of deliveries of an endpoint; it prints as 10000+ if the server has counted no further.
type deliveryCount int64

func (n deliveryCount) String() string {
	text := strconv.FormatInt(int64(n), 10)
	if n == webhook.MaxCounted {
		text += "+"
	}
	return text
}

func (o *adminClient) webhookList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the endpoints and their waiting deliveries",
		Example: `  sluice webhook list`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printList(cmd.Context(), o, get(adminPath("webhooks")),
				"ENDPOINT\tSTATE\tWAITING\tOLDEST\tFAILED\tURL\tTITLE", func(e client.Endpoint) []any {
					return []any{
						e.ID, stateText(e), deliveryCount(e.Waiting), seconds(e.OldestAgeSeconds), deliveryCount(e.Failed),
						e.URL, e.Title,
					}
				})
		},
	}
}

func (o *adminClient) webhookShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show ENDPOINT",
		Short:   "Show one endpoint",
		Example: `  sluice webhook show ep_k3jx5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var e client.Endpoint
			return o.print(cmd.Context(), get(adminPath("webhooks", args[0])), &e, func(w io.Writer) {
				fields(w, "endpoint", e.ID, "url", e.URL, "title", e.Title, "state", stateText(e), "reason", e.Reason,
					"types", listed(e.Types), "sales", listed(e.Sales), "strict", e.Strict,
					"created", cell(e.CreatedAt)+" by "+e.CreatedBy, "waiting", deliveryCount(e.Waiting),
					"oldest", seconds(e.OldestAgeSeconds), "failed", deliveryCount(e.Failed), "failing since", e.FailingSince,
					"last error", e.LastError, "last error at", e.LastErrorAt, "held until", e.HeldUntil,
					"old secret until", e.OldSecretUntil)
			})
		},
	}
}

func (o *adminClient) webhookChange() *cobra.Command {
	var target, title, why string
	var types, sales []string
	c := &cobra.Command{
		Use:     "change ENDPOINT",
		Short:   "Change the named settings of an endpoint. An empty --type or --sale means all",
		Example: `  sluice webhook change ep_k3jx5 --url https://shop.example/v2 --sale ''`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"reason": why}
			settings := map[string]any{
				"url": target, "title": title, "types": append([]string{}, types...), "sales": append([]string{}, sales...),
			}
			for name, value := range settings {
				if cmd.Flags().Changed(strings.TrimSuffix(name, "s")) { // types is a list of --type
					body[name] = value
				}
			}
			if len(body) == 1 {
				return usage("nothing to change: set --url, --title, --type or --sale")
			}
			err := o.postEach(cmd.Context(), args, "is changed", body, func(id string) string {
				return adminPath("webhooks", id, "change")
			})
			if err != nil {
				return err
			}
			o.warnOfUnknownSales(cmd.Context(), sales)
			return nil
		},
	}
	webhookFlagsOf(c, &title, &types, &sales, &why)
	c.Flags().StringVar(&target, "url", "", "URL that events are posted to")
	return c
}

// webhookPost is a command that posts to verb of the named endpoints. example is a reason.
func (o *adminClient) webhookPost(verb, short, example string) *cobra.Command {
	return o.postCommand(&cobra.Command{
		Use:     verb + " ENDPOINT...",
		Short:   short,
		Example: fmt.Sprintf("  sluice webhook %s ep_k3jx5 --reason %q", verb, example),
	}, "is "+strings.TrimSuffix(verb, "e")+"ed", func(id string) string { return adminPath("webhooks", id, verb) })
}

func (o *adminClient) webhookRemove() *cobra.Command {
	return o.removeCommand(&cobra.Command{
		Use:   "remove ENDPOINT...",
		Short: "Remove endpoints with all their deliveries; prompts, unless --yes is set",
		Example: `  sluice webhook remove ep_k3jx5 --reason "replaced"
  sluice webhook remove ep_k3jx5 --yes     # in a script`,
	}, "its deliveries, also those that wait", func(id string) string { return adminPath("webhooks", id, "remove") })
}

func (o *adminClient) webhookRotate() *cobra.Command {
	var why string
	var keep time.Duration
	c := &cobra.Command{
		Use:   "rotate ENDPOINT",
		Short: "Create a new secret for an endpoint, and show it once; the old one also signs until --keep has passed",
		Example: `  sluice webhook rotate ep_k3jx5
  sluice webhook rotate ep_k3jx5 --keep 0s --reason "it was in a log"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer struct{ Keep, Secret string }
			body := map[string]string{"reason": why, "keep": keep.String()}
			return o.print(cmd.Context(), post(adminPath("webhooks", args[0], "rotate"), body), &answer, func(w io.Writer) {
				old := "signs too for " + answer.Keep
				if keep == 0 {
					old = "signs no longer"
				}
				fmt.Fprintf(w, "The new secret is shown only once; the old one %s:\n\n  %s\n", old, answer.Secret)
			})
		},
	}
	reasonFlag(c, &why)
	c.Flags().DurationVar(&keep, "keep", 24*time.Hour, "how long the old secret also signs; 0s: not at all")
	return c
}

// pingWait is the timeout of a ping: the longest timeout of an endpoint, and a margin. The delivery is read every
// pingEvery.
const (
	pingWait  = 30 * time.Second
	pingEvery = 200 * time.Millisecond
)

func (o *adminClient) webhookPing() *cobra.Command {
	return &cobra.Command{
		Use:     "ping ENDPOINT",
		Short:   "Send one test delivery to an endpoint and show the response; exit 1 if it is not 2xx",
		Example: `  sluice webhook ping ep_k3jx5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var sent struct{ Delivery string }
			if err := o.do(cmd.Context(), post(adminPath("webhooks", args[0], "ping"), nil), &sent); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), pingWait)
			defer cancel()
			path := adminPath("webhooks", args[0], "deliveries", sent.Delivery)
			for {
				var d adminhttp.DeliveryDetails
				raw, err := o.fetch(cmd.Context(), get(path), &d)
				if err != nil {
					return err
				}
				if d.State != "waiting" {
					var failed error
					if d.State != "delivered" {
						failed = fmt.Errorf("%s: the test delivery %s failed: %s", args[0], d.ID, lastAttempt(d))
						if !o.p.json {
							return failed
						}
					}
					return errors.Join(failed, o.p.show(raw, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", d.ID, lastAttempt(d)) }))
				}
				if loop.Sleep(ctx, pingEvery); ctx.Err() != nil {
					return orInterrupted(cmd.Context(), fmt.Errorf("%s is not sent after %s: start sluice group run webhooks, "+
						"or see sluice webhook deliveries %s", d.ID, pingWait, args[0]))
				}
			}
		},
	}
}

func attemptCells(a webhook.DeliveryAttempt) []any {
	return []any{a.Number, a.At, seconds(a.Seconds), a.Status, a.Error, fmt.Sprintf("%.200q", a.Answer)}
}

// lastAttempt describes the result of the last attempt.
func lastAttempt(d adminhttp.DeliveryDetails) string {
	if len(d.Log) == 0 {
		return d.State
	}
	a := d.Log[len(d.Log)-1]
	return cmp.Or(a.Error, fmt.Sprintf("the endpoint returned %d within %s", a.Status, seconds(a.Seconds)))
}

func (o *adminClient) webhookDeliveries() *cobra.Command {
	var page pageFlags
	var state string
	c := &cobra.Command{
		Use:   "deliveries ENDPOINT [DELIVERY]",
		Short: "List the deliveries to an endpoint, newest first; or show the attempts of one",
		Example: `  sluice webhook deliveries ep_k3jx5 --state failed
  sluice webhook deliveries ep_k3jx5 923417600000000123_paid_ep_k3jx5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := adminPath("webhooks", args[0], "deliveries")
			if len(args) == 1 {
				if _, err := strconv.ParseUint(page.after, 10, 63); page.after != "" && err != nil {
					return usage("--after %q: want the number that the previous page ended with", page.after)
				}
				return printList(cmd.Context(), o, page.request(path, "before", page.after, "state", state),
					"DELIVERY\tSTATE\tATTEMPTS\tWRITTEN\tENDED\tAGAIN", func(d adminhttp.Delivery) []any {
						return []any{d.ID, d.State, d.Attempts, d.CreatedAt, d.EndedAt, d.DueAt}
					})
			}
			var d adminhttp.DeliveryDetails
			return o.print(cmd.Context(), get(path+"/"+url.PathEscape(args[1])), &d, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s  %s\n%s\n\n", d.ID, d.State, cell(d.DueAt), d.Body)
				table(w, "ATTEMPT\tAT\tTOOK\tSTATUS\tERROR\tANSWER", d.Log, attemptCells)
			})
		},
	}
	page.add(c)
	f := o.p.flags(c)
	f.oneOf(c, &state, "state", "", "",
		"only this state: waiting, delivered or failed", "waiting", "delivered", "failed")
	f.filled("state")
	return c
}

func (o *adminClient) webhookRedeliver() *cobra.Command {
	var why string
	var since *time.Time
	var failed bool
	c := &cobra.Command{
		Use: "redeliver ENDPOINT [DELIVERY...]",
		Short: "Send deliveries again with the same id and body: the named ones, or with --failed all that failed " +
			"permanently",
		Example: `  sluice webhook redeliver ep_k3jx5 923417600000000123_paid_ep_k3jx5
  sluice webhook redeliver ep_k3jx5 --failed --since 2026-11-27T10:00:00Z
  sluice webhook redeliver ep_k3jx5 --failed --since 2h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case failed == (len(args) > 1):
				return usage("name deliveries, or use --failed")
			case since != nil && !failed:
				return usage("--since needs --failed")
			case !failed:
				return o.postEach(cmd.Context(), args[1:], "is sent again", reason(why), func(id string) string {
					return adminPath("webhooks", args[0], "deliveries", id, "redeliver")
				})
			}
			body := reason(why)
			if since != nil {
				body["since"] = since.Format(time.RFC3339Nano)
			}
			var answer struct{ Redelivering int64 }
			return o.print(cmd.Context(), post(adminPath("webhooks", args[0], "redeliver"), body), &answer,
				func(w io.Writer) { fmt.Fprintf(w, "deliveries sent again: %d\n", answer.Redelivering) })
		},
	}
	reasonFlag(c, &why)
	f := o.p.flags(c)
	f.BoolVar(&failed, "failed", false, "all failed deliveries")
	f.since(&since, "since", "with --failed: only those failed since: RFC 3339, or a duration ago, "+
		"such as 2h (default: all)")
	return c
}
