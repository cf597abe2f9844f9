package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/mail"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"sluice/backend/api"
	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/internal/outbound"
)

const (
	envPush             = "SLUICE_PUSH"
	envPushContact      = "SLUICE_PUSH_CONTACT"
	envPushAllowPrivate = "SLUICE_PUSH_ALLOW_PRIVATE"
	envVAPID            = "SLUICE_VAPID_KEY"
)

// pushBlocking is the number of blocking Redis calls of a backend that wait for events of open pages.
const pushBlocking = 1

// pushConfig configures buyer notifications.
type pushConfig struct {
	adapters, contact string
	hold              time.Duration
	webPushConfig
}

// webPushConfig is what backends must know of Web Push too. They come from the environment: one is a secret, and the other must be the same in every process.
type webPushConfig struct {
	vapid        string // no Web Push without it
	allowPrivate string
}

func (p *program) pushFlags(f *pflag.FlagSet, cfg *pushConfig) {
	p.str(f, &cfg.adapters, "push", envPush, "log", "adapters that notify buyers of their orders, comma-separated: log, smtp://user:password@host:587?from=A&to={buyer}, ntfy://host/topic")
	p.str(f, &cfg.contact, "push-contact", envPushContact, "", "contact address for push services, mailto:... or https://...")
	f.DurationVar(&cfg.hold, "push-hold", notify.DefaultHold, "how long messages that an instance was sending stay with it when it is gone; an attempt takes half of it at most")
}

func (p *program) webPushEnv() webPushConfig {
	return webPushConfig{vapid: p.getenv(envVAPID), allowPrivate: p.getenv(envPushAllowPrivate)}
}

func (m *problems) checkWebPush(cfg webPushConfig) {
	if cfg.vapid != "" {
		if _, err := notify.ParseKey(cfg.vapid); err != nil {
			m.add("%s: %v", envVAPID, err)
		}
	}
	if _, err := cfg.client(); err != nil {
		m.add("%s: %v", envPushAllowPrivate, err)
	}
}

func (m *problems) checkPush(cfg pushConfig) {
	if _, err := notify.ParseAdapters(cfg.adapters, slog.Default()); err != nil {
		m.add("--push: %v", err)
	}
	if cfg.hold < minLease || cfg.hold > maxLease {
		m.add("--push-hold must be between %s and %s", minLease, maxLease)
	}
	m.checkWebPush(cfg.webPushConfig)
	if cfg.contact != "" || cfg.vapid != "" {
		if err := checkContact(cfg.contact); err != nil {
			m.add("--push-contact: %v", err)
		}
	}
}

// checkContact wants what push services accept: some refuse every message with another one.
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

func (cfg webPushConfig) client() (*outbound.Client, error) {
	var list []string
	for item := range strings.SplitSeq(cfg.allowPrivate, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	networks, err := outbound.ParseNetworks(list)
	if err != nil {
		return nil, err
	}
	return outbound.New(outbound.Config{AllowPrivate: networks, MaxBody: 4 << 10}), nil
}

// serve adds buyer notifications to the public API.
func (cfg webPushConfig) serve(public *api.Config, s *stores, live *notify.Live) error {
	public.Live = live
	if cfg.vapid == "" {
		return nil
	}
	key, err := notify.ParseKey(cfg.vapid)
	if err != nil {
		return usage("%s: %w", envVAPID, err)
	}
	client, err := cfg.client()
	if err != nil {
		return usage("%s: %w", envPushAllowPrivate, err)
	}
	public.Subscriptions, public.PushKey, public.CheckPushURL = notify.NewStore(s.db), key.Public(), client.CheckURL
	return nil
}

// runPush runs one instance of the notification group until ctx ends.
func runPush(ctx context.Context, log *slog.Logger, s *stores, cfg pushConfig, counters *events.Counters, registry prometheus.Registerer) error {
	adapters, err := notify.ParseAdapters(cfg.adapters, log)
	if err != nil {
		return usage("--push: %w", err)
	}
	config := notify.Config{Adapters: adapters, Hold: cfg.hold, Metrics: notify.NewCounters(registry), Log: log}
	channels := []string{notify.Web}
	for _, a := range adapters {
		channels = append(channels, a.Name())
	}
	registry.MustRegister(notify.NewCollector(notify.NewStore(s.db), channels...))
	if cfg.vapid != "" {
		key, err := notify.ParseKey(cfg.vapid)
		if err != nil {
			return usage("%s: %w", envVAPID, err)
		}
		client, err := cfg.client()
		if err != nil {
			return usage("%s: %w", envPushAllowPrivate, err)
		}
		config.Web = &notify.WebConfig{Key: key, Contact: cfg.contact, Client: client}
	} else {
		log.Info("Web Push is off: " + envVAPID + " is not set")
	}
	service := notify.New(notify.NewStore(s.db), config)
	c, err := events.New(s.redis, s.space, s.events, notify.Group, service, events.Config{Batch: 500, Idle: pointsIdle, Metrics: counters, Tracer: s.tracer, Log: log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) })
	g.Go(func() error { return service.Run(ctx) })
	return g.Wait()
}

// vapid reads the key for Web Push, and makes it when it is not there yet.
func (d dataDir) vapid() (string, error) {
	s, err := d.read(vapidFile)
	if !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	key, err := notify.NewKey()
	if err != nil {
		return "", err
	}
	return key.Private(), d.write(vapidFile, []byte(key.Private()+"\n"))
}

func (p *program) groupVAPID() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "vapid",
		Short: "Create a key pair for Web Push",
		Long: `Create a key pair that identifies this shop to push services (VAPID). Set the private key as ` + envVAPID + ` for every
backend and every instance of the group push, and keep it: with another key, every browser must subscribe again. Browsers
read the public key from GET /v1/push/key.`,
		Example: `  sluice group vapid
  export SLUICE_VAPID_KEY="$(sluice group vapid --json | jq -r .private)"`,
		RunE: func(*cobra.Command, []string) error {
			key, err := notify.NewKey()
			if err != nil {
				return err
			}
			if asJSON {
				return p.printJSON(map[string]string{"private": key.Private(), "public": key.Public()})
			}
			fmt.Fprintf(p.out, "%s=%s\npublic key: %s\n", envVAPID, key.Private(), key.Public())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
