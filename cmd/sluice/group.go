package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
	"sluice/internal/assemble"
	"sluice/internal/outbound"
	"sluice/internal/plural"
)

type groupFlags struct {
	cfg           assemble.GroupConfig
	points, vapid string
	private       []string // networks
}

// groups declares the flags that `group run` and `up` share.
func (f *flagSet) groups(g *groupFlags) {
	f.str(&g.points, "points", envPoints, points.DefaultRule,
		"points per full amount of the price in cents: 1/100 is one point per 100 cents")
	f.str(&g.cfg.WebPush.Contact, "web-push-contact", envWebPushContact, "",
		"contact address for push services, mailto:... or https://...")
	f.duration(&g.cfg.PushHold, "web-push-hold", "", notify.DefaultHold, minLease, maxLease, "lease of a message: how "+
		"long the messages of a crashed instance wait; an attempt takes at most half of it")
	f.allowPrivate(&g.private)
	f.duration(&g.cfg.WebhookTimeout, "webhook-timeout", envWebhookTimeout, 15*time.Second,
		100*time.Millisecond, 2*time.Minute, "timeout of a webhook request, response included")
	f.duration(&g.cfg.WebhookKeep, "webhook-keep", "", 7*24*time.Hour, time.Hour, 0,
		"how long delivered webhooks and failed pings are kept in the log; undelivered events stay")
}

func (g *groupFlags) finish(getenv func(string) string, bad *problems) {
	var err error
	g.cfg.Points, err = points.ParseRule(g.points)
	bad.check("--points", err)
	g.cfg.Webhooks = bad.checkNetworks("--allow-private", g.private, outbound.Config{
		Timeout: g.cfg.WebhookTimeout, PerHost: webhook.MaxRequests,
		Setting: "--allow-private of the process that sends webhooks",
	})
	g.cfg.WebPush.Key, g.cfg.WebPush.Client = bad.checkWebPush(g.vapid, getenv)
	if contact := g.cfg.WebPush.Contact; contact != "" || g.vapid != "" {
		bad.check("--web-push-contact", checkContact(contact))
	}
}

// checkContact returns an error for contact addresses that push services reject.
func checkContact(contact string) error {
	address, isMail := strings.CutPrefix(contact, "mailto:")
	if isMail {
		if a, err := mail.ParseAddress(address); err == nil && a.Name == "" && a.Address == address {
			return nil
		}
	} else if u, err := url.Parse(contact); err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil {
		return nil
	}
	return errors.New("want a contact address for push services, mailto:shop@example.com or https://shop.example.com/")
}

func (o *adminClient) groupCommand() *cobra.Command {
	list, remove := o.groupList(), o.groupRemove()
	o.flags(list.Flags())
	o.flags(remove.Flags())
	return parent(&cobra.Command{
		Use:   "group",
		Short: "List, run and remove the groups that consume order events",
		Long: `Each group gets every event of every order (created, paid, cancelled). Events that a group cannot
handle are its dead letters: see sluice dead --group. A group without running instances holds up the
stream, and events wait in the database; remove a group that is no longer needed.`,
	}, list, remove, o.p.groupRun(), o.p.groupVAPID())
}

func (p *program) groupRun() *cobra.Command {
	var stores assemble.StoresConfig
	var group groupFlags
	var metrics string
	c := &cobra.Command{
		Use:   "run GROUP",
		Short: "Run one instance of a group; any number may run, on any machine",
		Long: `Run one instance of a built-in group. Instances share the group's events; the events of a killed
instance go to the others after ten seconds. After SIGTERM it finishes the events in progress and
exits 0.

Groups: points (credits buyers); web-push (notifies subscribed browsers; needs ` + envVAPID + `);
webhooks (notifies other systems, see sluice webhook).`,
		Example: `  sluice group run points --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice --points 1/100
  sluice group run web-push --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice --web-push-contact mailto:shop@example.com`,
		Args: func(c *cobra.Command, args []string) error {
			want := strings.Join(assemble.Groups, ", ")
			switch {
			case len(args) == 0:
				return usage("GROUP is missing: want one of %s", want)
			case len(args) == 1 && !slices.Contains(assemble.Groups, args[0]):
				return usage("there is no group %q here: want one of %s", args[0], want)
			}
			return checkArgs(c, args)
		},
		ValidArgs:   assemble.Groups,
		Annotations: map[string]string{runsUntilSignal: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			registry := newRegistry()
			group.cfg.Registry, group.cfg.Counters = registry, events.NewCounters(registry)
			s, closeStores, err := p.openStores(cmd.Context(), "sluice-group-"+args[0], stores, registry)
			if err != nil {
				return err
			}
			defer closeStores()
			defer group.cfg.Webhooks.Close()
			return p.runParts(cmd.Context(), metrics, registry, s.RunGuard, func(ctx context.Context) error {
				p.logger().Info("the group is up", "group", args[0])
				return s.RunGroup(ctx, args[0], group.cfg)
			})
		},
	}
	f := p.flags(c)
	stores.Blocking = assemble.GroupBlocking
	f.stores(&stores)
	f.groups(&group)
	f.metrics(&metrics)
	f.check(func(bad *problems) {
		group.vapid = p.getenv(envVAPID)
		group.finish(p.getenv, bad)
	})
	return c
}

func (p *program) groupVAPID() *cobra.Command {
	c := &cobra.Command{
		Use:   "vapid",
		Short: "Create a key pair for Web Push",
		Long: `Create a key pair that identifies this shop to push services (VAPID). Set the private key as
` + envVAPID + ` for every backend and every instance of the group web-push, and keep it: with
another key, every browser must subscribe again. Browsers read the public key from GET /v1/push/key.`,
		Example: `  sluice group vapid
  export SLUICE_VAPID_KEY="$(sluice group vapid --json | jq -r .private)"`,
		RunE: func(*cobra.Command, []string) error {
			key, err := notify.NewKey()
			if err != nil {
				return err
			}
			return p.show(map[string]string{"private": key.Private, "public": key.Public}, func(w io.Writer) {
				fmt.Fprintf(w, "%s=%s\npublic key: %s\n", envVAPID, key.Private, key.Public)
			})
		},
	}
	p.flags(c).json(&p.json)
	return c
}

func (o *adminClient) groupList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the groups and their progress",
		Example: `  sluice group list`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer events.Status
			return o.print(cmd.Context(), get(adminPath("groups")), &answer, func(w io.Writer) {
				table(w, "GROUP\tLAG\tPENDING\tCONSUMERS\tOLDEST\tDEAD\t", answer.Groups, func(g events.GroupStatus) []any {
					remark := ""
					if !g.Known {
						remark = "created in Redis by hand"
					}
					return []any{g.Name, g.Lag, g.Pending, g.Consumers, seconds(g.OldestSeconds), g.Dead, remark}
				})
				waits := "none waits in the database"
				if answer.UnrelayedSeconds > 0 {
					waits = fmt.Sprintf("the oldest one in the database has waited %s for the stream",
						seconds(answer.UnrelayedSeconds))
				}
				fmt.Fprintf(w, "%s in the stream; %s\n", plural.Count(answer.Stream, "event"), waits)
			})
		},
	}
}

func (o *adminClient) groupRemove() *cobra.Command {
	return o.removeCommand(&cobra.Command{
		Use:   "remove GROUP...",
		Short: "Remove groups with their dead letters and unacknowledged events; prompts, unless --yes is set",
		Long: `Remove groups with their dead letters and unacknowledged events, after a prompt for each name, unless
--yes is set. "sluice group run" ends with its group; "sluice up" continues without it. Both register
the group again when they start.`,
		Example: `  sluice group remove old-push --reason "replaced"
  sluice group remove old-push --yes     # in a script`,
	}, "its dead letters and its unacknowledged events", func(name string) string {
		return adminPath("groups", name, "remove")
	})
}
