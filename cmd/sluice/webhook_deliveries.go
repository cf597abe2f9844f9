package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

type deliveryJSON struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Body      string     `json:"body"`
	Log       []struct {
		Number  int64     `json:"number"`
		At      time.Time `json:"at"`
		Seconds float64   `json:"seconds"`
		Status  int       `json:"status"`
		Error   string    `json:"error"`
		Answer  string    `json:"answer"`
	} `json:"log"`
}

// last is what came of the last attempt.
func (d deliveryJSON) last() string {
	if len(d.Log) == 0 {
		return d.State
	}
	a := d.Log[len(d.Log)-1]
	if a.Error != "" {
		return a.Error
	}
	return fmt.Sprintf("it answered %d within %s", a.Status, span(&a.Seconds))
}

func (o *adminClient) delivery(ctx context.Context, endpoint, id string) (d deliveryJSON, raw any, err error) {
	raw, err = o.get(ctx, webhookPath(endpoint)+"/deliveries/"+url.PathEscape(id), &d)
	return d, raw, err
}

func (o *adminClient) webhookDeliveries() *cobra.Command {
	var state string
	var limit int
	var before int64
	c := &cobra.Command{
		Use:   "deliveries ENDPOINT [DELIVERY]",
		Short: "List the deliveries to an endpoint, newest first; or show the attempts of one",
		Example: `  sluice webhook deliveries ep_k3jx5 --state failed
  sluice webhook deliveries ep_k3jx5 923417600000000123_paid_ep_k3jx5`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return o.showDelivery(cmd.Context(), args[0], args[1])
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if state != "" {
				q.Set("state", state)
			}
			if before > 0 {
				q.Set("before", strconv.FormatInt(before, 10))
			}
			var answer struct {
				Deliveries []deliveryJSON `json:"deliveries"`
				Next       int64          `json:"next"`
			}
			raw, err := o.get(cmd.Context(), webhookPath(args[0])+"/deliveries?"+q.Encode(), &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "DELIVERY\tSTATE\tATTEMPTS\tWRITTEN\tENDED\tAGAIN", func(t io.Writer) {
					for _, d := range answer.Deliveries {
						fmt.Fprintf(
							t,
							"%s\t%s\t%d\t%s\t%s\t%s\n",
							d.ID,
							d.State,
							d.Attempts,
							stamp(&d.CreatedAt),
							stamp(d.EndedAt),
							stamp(d.DueAt),
						)
					}
				})
				if answer.Next > 0 {
					fmt.Fprintf(w, "more: --before %d\n", answer.Next)
				}
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only waiting, delivered or failed")
	oneOf(c, "state", "waiting", "delivered", "failed")
	c.Flags().IntVar(&limit, "limit", 100, "how many at most")
	c.Flags().Int64Var(&before, "before", 0, "where the page before ended")
	return c
}

func (o *adminClient) showDelivery(ctx context.Context, endpoint, id string) error {
	d, raw, err := o.delivery(ctx, endpoint, id)
	if err != nil {
		return err
	}
	return o.show(raw, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s  %s\n%s\n\n", d.ID, d.State, stamp(d.DueAt), d.Body)
		table(w, "ATTEMPT\tAT\tTOOK\tSTATUS\tERROR\tANSWER", func(t io.Writer) {
			for _, a := range d.Log {
				fmt.Fprintf(
					t,
					"%d\t%s\t%s\t%d\t%s\t%.200q\n",
					a.Number,
					stamp(&a.At),
					span(&a.Seconds),
					a.Status,
					a.Error,
					a.Answer,
				)
			}
		})
	})
}

func (o *adminClient) webhookRedeliver() *cobra.Command {
	var why, since string
	var failed bool
	c := &cobra.Command{
		Use: "redeliver ENDPOINT [DELIVERY...]",
		Short: "Send deliveries again with the same id and body: the named ones, or with --failed all that failed " +
			"permanently",
		Example: `  sluice webhook redeliver ep_k3jx5 923417600000000123_paid_ep_k3jx5
  sluice webhook redeliver ep_k3jx5 --failed --since 2026-11-27T10:00:00Z`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case failed == (len(args) > 1):
				return usage("name deliveries, or use --failed")
			case since != "" && !failed:
				return usage("--since goes with --failed")
			case !failed:
				return o.each(args[1:], func(id string) (string, error) {
					return "is sent again", o.call(
						cmd.Context(),
						http.MethodPost,
						webhookPath(args[0])+"/deliveries/"+url.PathEscape(id)+"/redeliver",
						map[string]string{"reason": why},
						nil,
					)
				})
			}
			body := map[string]any{"reason": why}
			if since != "" {
				body["since"] = since
			}
			var answer struct {
				Redelivering int64 `json:"redelivering"`
			}
			if err := o.call(cmd.Context(), http.MethodPost, webhookPath(args[0])+"/redeliver", body, &answer); err != nil {
				return err
			}
			return o.show(answer, func(w io.Writer) { fmt.Fprintf(w, "%d deliveries are sent again\n", answer.Redelivering) })
		},
	}
	reasonFlag(c, &why)
	c.Flags().BoolVar(&failed, "failed", false, "all that were given up")
	c.Flags().StringVar(&since, "since", "", "with --failed: given up since then, RFC 3339 (default: ever)")
	return c
}
