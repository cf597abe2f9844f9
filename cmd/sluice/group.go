package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
	"sluice/backend/queue"
)

const envPoints = "SLUICE_POINTS"

// groupConfig is what the groups of this program need to know.
type groupConfig struct {
	points  string
	webPush webPushConfig
	hooks   webhookConfig
}

func (p *program) groupFlags(f *pflag.FlagSet, cfg *groupConfig) {
	p.str(
		f,
		&cfg.points,
		"points",
		envPoints,
		points.DefaultRule,
		"points credited for an order: so many for each full so many cents of its price",
	)
	p.webPushFlags(f, &cfg.webPush)
	p.webhookFlags(f, &cfg.hooks)
}

func (m *problems) checkGroups(cfg groupConfig) {
	if _, err := points.ParseRule(cfg.points); err != nil {
		m.add("--points: %v", err)
	}
	m.checkWebPush(cfg.webPush)
	m.checkWebhooks(cfg.hooks)
}

// pointsIdle is soon, because the group only writes to SQL, and that takes no second.
const pointsIdle = 10 * time.Second

// runPoints runs one instance of the group that credits points, until ctx ends.
func runPoints(ctx context.Context, log *slog.Logger, s *stores, cfg groupConfig, counters *events.Counters) error {
	rule, err := points.ParseRule(cfg.points)
	if err != nil {
		return usage("--points: %w", err)
	}
	c, err := events.New(
		s.redis,
		s.space,
		s.events,
		points.Group,
		points.Handler(points.NewStore(s.db), rule),
		events.Config{Batch: 500, Idle: pointsIdle, Metrics: counters, Tracer: s.tracer, Log: log},
	)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// groupBlocking is how many calls of one group wait in Redis.
const groupBlocking = 3

func (p *program) groupCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "group",
		Short: "List, run and remove the groups that consume order events",
		Long: `Each group gets every event of every order (created, paid, cancelled). Events that a group cannot
handle are its dead letters: see sluice dead --group. A group without running instances holds up the
stream, and events wait in the database; remove a group that is no longer needed.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	o := &adminClient{p: p}
	list, remove := o.groupList(), o.groupRemove()
	for _, sub := range []*cobra.Command{list, remove} {
		o.flags(sub.Flags())
	}
	o.completes(remove, 0, "/admin/v1/groups", "groups", "name", "dead")
	c.AddCommand(list, remove, p.groupRun(), p.groupVAPID())
	return c
}

func (p *program) groupRun() *cobra.Command {
	var cfg struct {
		storesConfig
		groupConfig
		metrics string
	}
	c := &cobra.Command{
		Use:   "run points|web-push|webhooks",
		Short: "Run one instance of a group; any number may run, on any machine",
		Long: `Run one instance of a built-in group. Instances share the group's events; the events of a killed
instance go to the others after ten seconds. After SIGTERM it finishes the events in progress and
exits 0.

Groups: points (credits buyers); web-push (notifies subscribed browsers; needs ` + envVAPID + `);
webhooks (notifies other systems, see sluice webhook).`,
		Example: `  sluice group run points --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice --points 1/100
  sluice group run web-push --web-push-contact mailto:shop@example.com`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: ownGroups,
		RunE: func(cmd *cobra.Command, args []string) error {
			var bad problems
			if !slices.Contains(ownGroups, args[0]) {
				bad.add("there is no group %q here: want %s, %s or %s", args[0], points.Group, notify.Group, webhook.Group)
			}
			cfg.webPush.webPushKeys = p.webPushEnv()
			if cfg.redisURL == "" {
				bad.add("no Redis: set %s or --redis", envRedis)
			} else {
				bad.checkRedis("--redis", cfg.redisURL)
			}
			if cfg.database == "" {
				bad.add("no database: set %s or --database", envDatabase)
			}
			bad.checkShards(cfg.shards)
			bad.checkGroups(cfg.groupConfig)
			if err := bad.err(); err != nil {
				return err
			}
			log := p.logger()
			tracer, err := p.openTracer(cmd.Context(), "sluice-group-"+args[0], log)
			if err != nil {
				return err
			}
			defer tracer.Close()
			registry := newRegistry()
			counters := events.NewCounters(registry)
			cfg.blocking = groupBlocking
			s, err := openStores(cmd.Context(), log, cfg.storesConfig, nil, queue.Config{})
			if err != nil {
				return err
			}
			defer s.close()
			s.trace(tracer)
			g, ctx := errgroup.WithContext(cmd.Context())
			g.Go(func() error { return serveMetrics(ctx, log, cfg.metrics, registry) })
			g.Go(func() error { return s.guardWorker(ctx) })
			switch args[0] {
			case points.Group:
				g.Go(func() error { return runPoints(ctx, log, s, cfg.groupConfig, counters) })
			case notify.Group:
				g.Go(func() error { return runWebPush(ctx, log, s, cfg.webPush, counters, registry) })
			case webhook.Group:
				g.Go(func() error { return runWebhooks(ctx, log, s, cfg.hooks, counters, webhook.NewCounters(registry)) })
			}
			log.Info("the group is up", "group", args[0])
			return g.Wait()
		},
	}
	f := c.Flags()
	p.str(f, &cfg.redisURL, "redis", envRedis, "", redisHelp)
	p.str(f, &cfg.database, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	p.shardsFlag(f, &cfg.shards)
	p.groupFlags(f, &cfg.groupConfig)
	f.StringVar(&cfg.metrics, "metrics", "", metricsHelp)
	return c
}

func (o *adminClient) groupList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the groups and their progress",
		Example: `  sluice group list`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Stream    int64   `json:"stream_entries"`
				Unrelayed float64 `json:"unrelayed_seconds"`
				Groups    []struct {
					Name      string  `json:"name"`
					Known     bool    `json:"known"`
					Lag       int64   `json:"lag"`
					Pending   int64   `json:"pending"`
					Consumers int64   `json:"consumers"`
					Oldest    float64 `json:"oldest_age_seconds"`
					Dead      int64   `json:"dead"`
				} `json:"groups"`
			}
			raw, err := o.get(cmd.Context(), "/admin/v1/groups", &answer)
			if err != nil {
				return err
			}
			return o.show(raw, func(w io.Writer) {
				table(w, "GROUP\tLAG\tPENDING\tCONSUMERS\tOLDEST\tDEAD\t", func(t io.Writer) {
					for _, g := range answer.Groups {
						remark := ""
						if !g.Known {
							remark = "made by hand"
						}
						fmt.Fprintf(
							t,
							"%s\t%d\t%d\t%d\t%s\t%d\t%s\n",
							g.Name,
							g.Lag,
							g.Pending,
							g.Consumers,
							span(&g.Oldest),
							g.Dead,
							remark,
						)
					}
				})
				fmt.Fprintf(
					w,
					"%d events in the stream; the oldest that is not in it yet is %s old\n",
					answer.Stream,
					span(&answer.Unrelayed),
				)
			})
		},
	}
}

func (o *adminClient) groupRemove() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:     "remove GROUP...",
		Short:   "Remove groups with their dead letters and unacknowledged events",
		Example: `  sluice group remove old-push --reason "replaced"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.each(args, func(name string) (string, error) {
				return "is removed", o.call(
					cmd.Context(),
					http.MethodPost,
					"/admin/v1/groups/"+url.PathEscape(name)+"/remove",
					map[string]string{"reason": why},
					nil,
				)
			})
		},
	}
	c.Flags().StringVar(&why, "reason", "", "reason for the admin log")
	return c
}

// listLetters is sluice dead --group NAME list.
func (o *adminClient) listLetters(ctx context.Context, group, query string) error {
	var answer struct {
		Dead []struct {
			Event      string    `json:"event"`
			Reason     string    `json:"reason"`
			Deliveries int64     `json:"deliveries"`
			DiedAt     time.Time `json:"died_at"`
			Retrying   bool      `json:"retrying"`
		} `json:"dead"`
		Next string `json:"next"`
	}
	raw, err := o.get(ctx, "/admin/v1/groups/"+url.PathEscape(group)+"/dead?"+query, &answer)
	if err != nil {
		return err
	}
	return o.show(raw, func(w io.Writer) {
		table(w, "EVENT\tDIED\tDELIVERIES\tREASON", func(t io.Writer) {
			for _, d := range answer.Dead {
				reason := d.Reason
				if d.Retrying {
					reason += " (is to be run again)"
				}
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", d.Event, stamp(&d.DiedAt), d.Deliveries, reason)
			}
		})
		more(w, answer.Next)
	})
}

// settleLetters is sluice dead --group NAME retry or cancel, of single events or of all.
func (o *adminClient) settleLetters(ctx context.Context, group, verb, why string, ids []string, all bool) error {
	path := "/admin/v1/groups/" + url.PathEscape(group) + "/dead"
	became := map[string]string{"retry": "is run again", "cancel": "is dropped"}[verb]
	if all { // those that are there now: what dies again meanwhile is left alone
		var err error
		if ids, err = o.letterIDs(ctx, path); err != nil {
			return err
		}
	}
	return o.each(ids, func(id string) (string, error) {
		return became, o.call(
			ctx,
			http.MethodPost,
			path+"/"+url.PathEscape(id)+"/"+verb,
			map[string]string{"reason": why},
			nil,
		)
	})
}

// letterIDs returns the ids of all dead letters of the group at path.
func (o *adminClient) letterIDs(ctx context.Context, path string) (ids []string, err error) {
	for after := ""; ; {
		var page struct {
			Dead []struct {
				Event string `json:"event"`
			} `json:"dead"`
			Next string `json:"next"`
		}
		if err := o.call(
			ctx,
			http.MethodGet,
			path+"?"+url.Values{"after": {after}, "limit": {"1000"}}.Encode(),
			nil,
			&page,
		); err != nil {
			return nil, err
		}
		for _, d := range page.Dead {
			ids = append(ids, d.Event)
		}
		if after = page.Next; after == "" {
			return ids, nil
		}
	}
}
