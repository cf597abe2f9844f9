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
	envWebPushContact      = "SLUICE_WEB_PUSH_CONTACT"
	envWebPushAllowPrivate = "SLUICE_WEB_PUSH_ALLOW_PRIVATE"
	envVAPID               = "SLUICE_VAPID_KEY"
)

// pageBlocking is the number of blocking Redis calls of a backend that wait for events of open pages.
const pageBlocking = 1

// webPushConfig configures the group that sends Web Push messages.
type webPushConfig struct {
	contact string
	hold    time.Duration
	webPushKeys
}

// webPushKeys is the part of the configuration that backends need as well. It is read from the environment: the key
// is a secret, and both settings must be the same in every process.
type webPushKeys struct {
	vapid        string // without it, Web Push is off
	allowPrivate string
}

func (p *program) webPushFlags(f *pflag.FlagSet, cfg *webPushConfig) {
	p.str(f, &cfg.contact, "web-push-contact", envWebPushContact, "", "contact address for push services, mailto:... "+
		"or https://...")
	f.DurationVar(&cfg.hold, "web-push-hold", notify.DefaultHold, "lease of a message: how long the messages of a "+
		"crashed instance wait; an attempt takes at most half of it")
}

func (p *program) webPushEnv() webPushKeys {
	return webPushKeys{vapid: p.getenv(envVAPID), allowPrivate: p.getenv(envWebPushAllowPrivate)}
}

func (m *problems) checkWebPushKeys(cfg webPushKeys) {
	if cfg.vapid != "" {
		if _, err := notify.ParseKey(cfg.vapid); err != nil {
			m.add("%s: %v", envVAPID, err)
		}
	}
	if _, err := cfg.client(); err != nil {
		m.add("%s: %v", envWebPushAllowPrivate, err)
	}
}

func (m *problems) checkWebPush(cfg webPushConfig) {
	if cfg.hold < minLease || cfg.hold > maxLease {
		m.add("--web-push-hold must be between %s and %s", minLease, maxLease)
	}
	m.checkWebPushKeys(cfg.webPushKeys)
	if cfg.contact != "" || cfg.vapid != "" {
		if err := checkContact(cfg.contact); err != nil {
			m.add("--web-push-contact: %v", err)
		}
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

func (cfg webPushKeys) client() (*outbound.Client, error) {
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
func (cfg webPushKeys) serve(public *api.Config, s *stores, live *notify.Live) error {
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
		return usage("%s: %w", envWebPushAllowPrivate, err)
	}
	public.Subscriptions, public.PushKey, public.CheckPushURL = notify.NewStore(s.db), key.Public(), client.CheckURL
	return nil
}

// runWebPush runs one instance of the Web Push group until ctx ends. Without a key it acknowledges events and sends
// nothing.
func runWebPush(
	ctx context.Context, log *slog.Logger, s *stores, cfg webPushConfig, counters *events.Counters,
	registry prometheus.Registerer,
) error {
	db := notify.NewStore(s.db)
	config := notify.Config{Hold: cfg.hold, Metrics: notify.NewCounters(registry), Log: log}
	registry.MustRegister(notify.NewCollector(db))
	if cfg.vapid != "" {
		key, err := notify.ParseKey(cfg.vapid)
		if err != nil {
			return usage("%s: %w", envVAPID, err)
		}
		client, err := cfg.client()
		if err != nil {
			return usage("%s: %w", envWebPushAllowPrivate, err)
		}
		config.Web = &notify.WebConfig{Key: key, Contact: cfg.contact, Client: client}
	} else {
		log.Info("Web Push is off: " + envVAPID + " is not set")
	}
	service := notify.New(db, config)
	c, err := events.New(s.redis, s.space, s.events, notify.Group, service,
		events.Config{Batch: 500, Idle: pointsIdle, Metrics: counters, Tracer: s.tracer, Log: log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) })
	g.Go(func() error { return service.Run(ctx) })
	return g.Wait()
}

// vapid reads the key for Web Push, and creates it if it does not exist.
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
