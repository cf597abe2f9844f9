package main

import (
	"log/slog"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/admission"
	"sluice/backend/api/userlimit"
	"sluice/backend/events/notify"
	"sluice/backend/payment"
	"sluice/backend/recovery/journal"
	"sluice/backend/web/buyer"
	"sluice/gateway/replay"
	"sluice/internal/assemble"
	"sluice/internal/outbound"
	"sluice/internal/token"
)

type backendFlags struct {
	stores        assemble.StoresConfig
	cfg           assemble.BackendConfig
	listen, admin string
	tokenKeys     string
	expect        token.Expect
	pages         buyer.Config
	secret, vapid string
	private       []string // networks
}

func (p *program) backendCommand() *cobra.Command {
	var b backendFlags
	c := &cobra.Command{
		Use:   "backend",
		Short: "Run the public API and the admin API",
		Long: `Run the backend, which decides purchases. Run two or more behind an edge. It needs ` + envSecret + `
(at least 32 bytes, equal in all processes), --token-keys or both, and ` + envAdminToken + `. With
` + envLimitRedis + ` the per-user limit (` + envUserRate + `) is shared by all backends; without
it, each backend has its own.`,
		Example: `  sluice backend --listen :8080 --admin 127.0.0.1:8081 --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice
  sluice backend --listen unix:/run/sluice/backend.sock --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice    # for edges on this machine`,
		Annotations: map[string]string{runsUntilSignal: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			b.cfg.Registry = newRegistry()
			s, closeStores, err := p.openStores(cmd.Context(), "sluice-backend", b.stores, b.cfg.Registry)
			if err != nil {
				return err
			}
			defer closeStores()
			p.collectLess()
			if err := b.cfg.Tokens.Await(cmd.Context(), p.logger()); err != nil {
				return orInterrupted(cmd.Context(), err)
			}
			public, err := listen(cmd.Context(), "listen", b.listen)
			if err != nil {
				return err
			}
			defer public.Close()
			admin, err := listen(cmd.Context(), "admin", b.admin)
			if err != nil {
				return err
			}
			defer admin.Close()
			b.warn(p.logger())
			backend, err := assemble.NewBackend(s, b.cfg) // after the listeners: it logs
			if err != nil {
				return err
			}
			p.logger().Info("backend is up", "listen", public.Addr().String(), "admin", admin.Addr().String(),
				"keys", b.cfg.Tokens.Set().Names())
			return backend.Run(cmd.Context(), public, admin)
		},
	}
	f := p.flags(c)
	f.redis(&b.stores.Redis)
	f.database(&b.stores.Database)
	f.listenOrSocket(&b.listen, "listen", envListen, defaultListen, "address that edges connect to, host:port, or "+
		"unix:/path for edges on this machine")
	f.backend(c, &b)
	f.str(&b.cfg.OrdersReplica, "orders-replica", envOrdersReplica, "", "streaming replica of the database for status "+
		"queries of orders, postgres://...; answers are at most one second old (default: the database)")
	f.str(&b.cfg.Journal.Dir, "journal", envJournal, "", "directory for the journal of accepted orders that are not rows "+
		"yet; not shared with another backend (default: no journal)")
	f.allowPrivate(&b.private)
	f.check(func(bad *problems) {
		scheme, _, _ := strings.Cut(b.cfg.OrdersReplica, ":")
		if scheme != "" && scheme != "postgres" && scheme != "postgresql" {
			bad.add("%s: must begin with postgres://", f.source("orders-replica", envOrdersReplica))
		}
		b.secret, b.vapid, b.cfg.AdminToken = p.getenv(envSecret), p.getenv(envVAPID), p.getenv(envAdminToken)
		b.finish(p.getenv, bad)
		b.finishSecrets(p.getenv, bad)
	})
	return c
}

// collectLess raises GOGC to 400, unless the environment sets it: a backend and a worker have a small live heap and
// much garbage. The default costs a tenth of a backend's time and a fifth of a worker's, and saves a few megabytes.
func (p *program) collectLess() {
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// maxReplicas bounds --redis-wait against typing errors: a number that is too high rejects every purchase.
const maxReplicas = 16

// backend declares the flags that `backend` and `up` share.
func (f *flagSet) backend(c *cobra.Command, b *backendFlags) {
	b.stores.Blocking = assemble.PageBlocking
	f.listen(&b.admin, "admin", envAdmin, defaultAdmin, "address of the admin listener, host:port; keep it private")
	f.shards(&b.stores.Shards)
	f.queue(c, &b.stores.Driver)
	f.number(&b.cfg.MaxReady, "max-ready", envMaxReady, admission.DefaultMaxReady, 1, 0, "orders that may wait in one "+
		"shard; beyond that, purchases of its sales are answered 503. About 170 bytes of Redis each, 360 with an "+
		"Idempotency-Key")
	f.number(&b.cfg.Replicas, "redis-wait", envWait, 0, 0, maxReplicas, "replicas of Redis that must have an order "+
		"before the 202; if fewer have it after half a second, the answer is 503, and a retry finds the order")
	f.oneOf(c, (*string)(&b.cfg.Journal.Sync), "journal-sync", envJournalSync, string(journal.Second),
		"when the journal is forced to disk: always (before each answer) or second",
		string(journal.Always), string(journal.Second))
	f.str(&b.tokenKeys, "token-keys", envKeys, "", keysHelp+"; a file is read again when it changes")
	f.expect(&b.expect)
	f.str(&b.pages.SignIn, "sign-in", envSignIn, "", "sign-in page for buyers without a token, "+
		"https://shop.example/login?back={url}; it returns them with #token=TOKEN (default: a field for the token)")
	f.str(&b.pages.Checkout, "checkout", envCheckout, "", "checkout of the shop, "+
		"https://shop.example/pay?order={order}&sale={sale}; the page leads to it "+
		"while the hold of an order lasts (default: no link)")
	f.list(&b.pages.FrameAncestors, "frame-ancestors", envFrameAncestors, "origin of a site that may show the buyer's "+
		"pages in a frame, https://shop.example or https://*.shop.example; repeatable (default: none may)")
	f.list(&b.cfg.EdgeMetrics, "edge-metrics", envEdgeMetrics, "metrics URL of an edge or of another backend for the "+
		"admin console, http://host:port/metrics; repeatable")
}

// allowPrivate declares a flag of backends, which check the URLs of endpoints, and of the group that sends webhooks.
func (f *flagSet) allowPrivate(to *[]string) {
	value, help := f.env(envAllowPrivate, "private networks that webhooks may be sent to, such as 10.0.0.0/8; "+
		"http:// is allowed there")
	f.StringSliceVar(to, "allow-private", items(value), help)
	f.Lookup("allow-private").DefValue = "[]"
}

// minAdminToken is how many bytes an admin token has at least. A shorter one could be guessed.
const minAdminToken = 16

// finish checks the settings that are not secrets, and builds cfg from the flags and the environment.
func (b *backendFlags) finish(getenv func(string) string, bad *problems) {
	var err error
	for _, raw := range b.cfg.EdgeMetrics {
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			bad.add("--edge-metrics %q: want http://host:port/metrics", raw)
		}
	}
	b.cfg.Policies = replay.NewTrial()
	b.cfg.Site, err = buyer.New(b.pages)
	if err != nil {
		bad.add("%v", err) // it names the flags
	}
	b.cfg.WebhookURLs = bad.checkNetworks(
		"--allow-private", b.private, outbound.Config{Setting: "--allow-private of the backend"})
	if b.cfg.LimitRedis = getenv(envLimitRedis); b.cfg.LimitRedis != "" {
		bad.checkLimitRedis(envLimitRedis, b.cfg.LimitRedis)
	}
	b.cfg.UserRate = getenv(envUserRate)
	_, err = userlimit.New(b.cfg.UserRate, nil)
	bad.check(envUserRate, err)
}

func (b *backendFlags) finishSecrets(getenv func(string) string, bad *problems) {
	b.cfg.Tokens = bad.checkTokens(b.secret, b.tokenKeys, b.expect)
	if b.cfg.AdminToken == "" {
		bad.add("%s is not set: it protects the admin API, and must hold at least %d bytes (openssl rand -hex 32 makes one)",
			envAdminToken, minAdminToken)
	} else if n := len(b.cfg.AdminToken); n < minAdminToken {
		bad.add("%s has %d bytes: it must hold at least %d (openssl rand -hex 32 makes one)", envAdminToken, n, minAdminToken)
	}
	b.cfg.PushKey, b.cfg.PushURLs = bad.checkWebPush(b.vapid, getenv)
	if secret := getenv(envPayment); secret != "" {
		var err error
		b.cfg.Callbacks, err = payment.NewVerifier(secret, time.Now)
		bad.check(envPayment, err)
	}
}

// warn logs settings that are valid and probably incomplete.
func (b *backendFlags) warn(log *slog.Logger) {
	if b.pages.Checkout != "" && b.cfg.Callbacks == nil {
		log.Warn("--checkout is set and " + envPayment + " is not set: callbacks of payments get 503, and no order is paid")
	}
}

// checkNetworks returns a client that may connect to the networks.
func (m *problems) checkNetworks(setting string, networks []string, cfg outbound.Config) *outbound.Client {
	var err error
	cfg.AllowPrivate, err = outbound.ParseNetworks(networks)
	m.check(setting, err)
	return outbound.New(cfg)
}

// checkWebPush returns the key for Web Push, which is zero without vapid, and the client for push services. Both must
// be the same in every process.
func (m *problems) checkWebPush(vapid string, getenv func(string) string) (key notify.Key, _ *outbound.Client) {
	if vapid != "" {
		var err error
		key, err = notify.ParseKey(vapid)
		m.check(envVAPID, err)
	}
	private := items(getenv(envWebPushAllowPrivate))
	return key, m.checkNetworks(envWebPushAllowPrivate, private, outbound.Config{MaxBody: 4 << 10})
}
