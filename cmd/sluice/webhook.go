package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type webhookJSON struct {
	ID               string     `json:"id"`
	URL              string     `json:"url"`
	Title            string     `json:"title"`
	Types            []string   `json:"types"`
	Sales            []string   `json:"sales"`
	Strict           bool       `json:"strict"`
	State            string     `json:"state"`
	Reason           string     `json:"reason"`
	CreatedAt        time.Time  `json:"created_at"`
	CreatedBy        string     `json:"created_by"`
	OldSecretUntil   *time.Time `json:"old_secret_until"`
	FailingSince     *time.Time `json:"failing_since"`
	HeldUntil        *time.Time `json:"held_until"`
	Waiting          int64      `json:"waiting"`
	Failed           int64      `json:"failed"`
	OldestAgeSeconds float64    `json:"oldest_age_seconds"`
	Secret           string     `json:"secret"`
}

func (w webhookJSON) stateText() string {
	switch {
	case w.State == "active" && w.FailingSince != nil:
		return "failing"
	default:
		return w.State
	}
}

func (p *program) webhookCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "webhook",
		Short: "Notify other systems of orders by signed HTTP POSTs: endpoints and deliveries",
		Long: `sluice posts every selected order event (created, paid, cancelled) to each endpoint, signed as
Standard Webhooks specifies, and retries for about a day until the endpoint answers 2xx. See
docs/webhooks.md.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := p.adminFlags(c)
	c.AddCommand(
		o.webhookAdd(),
		o.webhookList(),
		o.completesEndpoint(o.webhookShow(), 1),
		o.completesEndpoint(o.webhookChange(), 1),
		o.completesEndpoint(o.webhookTurn("pause", "keep deliveries until they are resumed"), 0),
		o.completesEndpoint(o.webhookTurn("resume", "send again, also to one that is disabled or held"), 0),
		o.completesEndpoint(
			o.webhookRotate(),
			1,
		),
		o.completesEndpoint(o.webhookRemove(), 0),
		o.completesEndpoint(o.webhookPing(), 1),
		o.completesEndpoint(o.webhookDeliveries(), 1),
		o.completesEndpoint(o.webhookRedeliver(), 1),
	)
	return c
}

func webhookPath(id string) string { return "/admin/v1/webhooks/" + url.PathEscape(id) }

// webhookFlagsOf are the settings of an endpoint as flags.
func webhookFlagsOf(c *cobra.Command, title *string, types, sales *[]string, why *string) {
	f := c.Flags()
	f.StringVar(title, "title", "", "what it is, for people")
	f.StringSliceVar(types, "type", nil, "order.created, order.paid or order.cancelled; repeatable (default: all)")
	f.StringSliceVar(sales, "sale", nil, "only of this sale; repeatable (default: all)")
	reasonFlag(c, why)
}

func reasonFlag(c *cobra.Command, why *string) {
	c.Flags().StringVar(why, "reason", "", "reason for the admin log")
}

func (o *adminClient) webhookAdd() *cobra.Command {
	var title, why string
	var types, sales []string
	var strict bool
	c := &cobra.Command{
		Use:     "add URL",
		Short:   "Create an endpoint; its secret is shown only once",
		Example: `  sluice webhook add https://shop.example/hooks/sluice --type order.paid --type order.cancelled --sale shoe`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{
				"url":    args[0],
				"title":  title,
				"strict": strict,
				"reason": why,
				"types":  listOf(types),
				"sales":  listOf(sales),
			}
			var raw json.RawMessage
			if err := o.call(cmd.Context(), http.MethodPost, "/admin/v1/webhooks", body, &raw); err != nil {
				return err
			}
			var made webhookJSON
			if err := json.Unmarshal(raw, &made); err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				fmt.Fprintf(w, "%s is made. Its secret, which is not shown again:\n\n  %s\n", made.ID, made.Secret)
			})
		},
	}
	webhookFlagsOf(c, &title, &types, &sales, &why)
	c.Flags().
		BoolVar(
			&strict, "strict", false,
			"one delivery at a time, in the order of all events; else the events of each order are in order",
		)
	return c
}

func listOf(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

func (o *adminClient) webhookList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the endpoints and their waiting deliveries",
		Example: `  sluice webhook list`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Webhooks []webhookJSON `json:"webhooks"`
			}
			raw, err := o.get(cmd.Context(), "/admin/v1/webhooks", &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "ENDPOINT\tSTATE\tWAITING\tOLDEST\tFAILED\tURL\tTITLE", func(t io.Writer) {
					for _, e := range answer.Webhooks {
						fmt.Fprintf(
							t,
							"%s\t%s\t%d\t%s\t%d\t%s\t%s\n",
							e.ID,
							e.stateText(),
							e.Waiting,
							span(&e.OldestAgeSeconds),
							e.Failed,
							e.URL,
							e.Title,
						)
					}
				})
			})
		},
	}
}

func (o *adminClient) webhookShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show ENDPOINT",
		Short:   "Show one endpoint",
		Example: `  sluice webhook show ep_k3jx5`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var e webhookJSON
			raw, err := o.get(cmd.Context(), webhookPath(args[0]), &e)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "FIELD\tVALUE", func(t io.Writer) {
					every := func(items []string) string {
						if len(items) == 0 {
							return "all"
						}
						return strings.Join(items, ", ")
					}
					for _, row := range [][2]string{
						{"endpoint", e.ID}, {"url", e.URL}, {"title", e.Title}, {"state", e.stateText()}, {"reason", e.Reason},
						{"types", every(e.Types)}, {"sales", every(e.Sales)},
						{"strict", strconv.FormatBool(e.Strict)}, {
							"made", stamp(&e.CreatedAt) + " by " + e.CreatedBy,
						}, {"waiting", strconv.FormatInt(e.Waiting, 10)},
						{"oldest", span(&e.OldestAgeSeconds)}, {
							"failed", strconv.FormatInt(e.Failed, 10),
						}, {"failing since", stamp(e.FailingSince)}, {"held until", stamp(e.HeldUntil)},
						{"old secret until", stamp(e.OldSecretUntil)},
					} {
						if row[1] != "" {
							fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
						}
					}
				})
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
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"reason": why}
			for flag, value := range map[string]any{"url": target, "title": title} {
				if cmd.Flags().Changed(flag) {
					body[flag] = value
				}
			}
			for flag, field := range map[string]struct {
				name  string
				items []string
			}{"type": {"types", types}, "sale": {"sales", sales}} {
				if cmd.Flags().Changed(flag) {
					body[field.name] = listOf(field.items)
				}
			}
			return o.each(args, func(id string) (string, error) {
				return "is changed", o.call(cmd.Context(), http.MethodPost, webhookPath(id)+"/change", body, nil)
			})
		},
	}
	webhookFlagsOf(c, &title, &types, &sales, &why)
	c.Flags().StringVar(&target, "url", "", "where it is posted to")
	return c
}

func (o *adminClient) webhookTurn(verb, what string) *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:     verb + " ENDPOINT...",
		Short:   strings.ToUpper(what[:1]) + what[1:],
		Example: "  sluice webhook " + verb + ` ep_k3jx5 --reason "the shop moves tonight"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(id string) (string, error) {
				return "is " + verb + "d", o.call(
					cmd.Context(),
					http.MethodPost,
					webhookPath(id)+"/"+verb,
					map[string]string{"reason": why},
					nil,
				)
			})
		},
	}
	reasonFlag(c, &why)
	return c
}

func (o *adminClient) webhookRotate() *cobra.Command {
	var why string
	var keep time.Duration
	c := &cobra.Command{
		Use:   "rotate ENDPOINT",
		Short: "Rotate the secret of an endpoint; the new one is shown only once. The old one signs too for a while",
		Example: `  sluice webhook rotate ep_k3jx5
  sluice webhook rotate ep_k3jx5 --keep 0s --reason "it was in a log"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer map[string]string
			if err := o.call(
				cmd.Context(),
				http.MethodPost,
				webhookPath(args[0])+"/rotate",
				map[string]string{"reason": why, "keep": keep.String()},
				&answer,
			); err != nil {
				return err
			}
			return o.show(answer, func(w io.Writer) {
				fmt.Fprintf(
					w,
					"The new secret, which is not shown again; the old one signs too for %s:\n\n  %s\n",
					answer["keep"],
					answer["secret"],
				)
			})
		},
	}
	reasonFlag(c, &why)
	c.Flags().DurationVar(&keep, "keep", 24*time.Hour, "how long the old secret signs too; 0s: not any more")
	return c
}

func (o *adminClient) webhookRemove() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:     "remove ENDPOINT...",
		Short:   "Remove endpoints with all their deliveries",
		Example: `  sluice webhook remove ep_k3jx5 --reason "replaced"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(id string) (string, error) {
				return "is removed", o.call(
					cmd.Context(),
					http.MethodPost,
					webhookPath(id)+"/remove",
					map[string]string{"reason": why},
					nil,
				)
			})
		},
	}
	reasonFlag(c, &why)
	return c
}

// pingWait is the timeout of a ping: the longest timeout of an endpoint, and a margin.
const pingWait = 30 * time.Second

func (o *adminClient) webhookPing() *cobra.Command {
	return &cobra.Command{
		Use:     "ping ENDPOINT",
		Short:   "Send one test delivery to an endpoint and show its answer; exit 1 if it is not 2xx",
		Example: `  sluice webhook ping ep_k3jx5`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sent struct {
				Delivery string `json:"delivery"`
			}
			if err := o.call(cmd.Context(), http.MethodPost, webhookPath(args[0])+"/ping", nil, &sent); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), pingWait)
			defer cancel()
			for {
				d, raw, err := o.delivery(cmd.Context(), args[0], sent.Delivery)
				if err != nil {
					return err
				}
				if d.State != "waiting" {
					if err := o.show(raw, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", d.ID, d.last()) }); err != nil {
						return err
					}
					if d.State != "delivered" {
						return fmt.Errorf("%s did not take it: %s", args[0], d.last())
					}
					return nil
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf(
						"%s is not sent after %s: does sluice group run webhooks run? (sluice webhook deliveries %s)",
						d.ID,
						pingWait,
						args[0],
					)
				case <-time.After(200 * time.Millisecond):
				}
			}
		},
	}
}
