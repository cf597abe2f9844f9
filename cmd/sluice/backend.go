package main

import (
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/backend/admission"
	"sluice/backend/payment"
	"sluice/backend/queue"
	"sluice/backend/web/buyer"
)

type backendConfig struct {
	storesConfig
	listen, admin                string
	limitRedisURL                string
	secret, adminToken, userRate string
	tokenKeys                    string
	paymentSecret                string
	signIn                       string
	edgeMetrics                  []string
	practice                     []string // sales that do not count as real for rehearsals
	journal                      journalConfig
	maxReady, redisWait          int
	hooks                        webhookConfig
	webPush                      webPushKeys
	filesPerStream               int // that an event stream takes in this process; 0: 1
}

func (p *program) backendCommand() *cobra.Command {
	var cfg backendConfig
	c := &cobra.Command{
		Use:   "backend",
		Short: "Run the public API and the admin API",
		Long: `Run the backend, which decides purchases. Run two or more behind an edge. It needs ` + envSecret + `
(at least 32 bytes, equal in all processes), --token-keys or both, and ` + envAdminToken + `. With
` + envLimitRedis + ` the per-user limit (` + envUserRate + `) is shared by all backends; without
it, each backend has its own.`,
		Example: `  sluice backend --listen :8080 --admin 127.0.0.1:8081 --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.secret, cfg.adminToken = p.getenv(envSecret), p.getenv(envAdminToken)
			cfg.limitRedisURL, cfg.userRate = p.getenv(envLimitRedis), p.getenv(envUserRate)
			cfg.paymentSecret, cfg.webPush = p.getenv(envPayment), p.webPushEnv()
			cfg.blocking = pageBlocking
			if err := cfg.check(); err != nil {
				return err
			}
			log := p.logger()
			tracer, err := p.openTracer(cmd.Context(), "sluice-backend", log)
			if err != nil {
				return err
			}
			defer tracer.Close()
			s, err := openStores(cmd.Context(), log, cfg.storesConfig, nil, queue.Config{})
			if err != nil {
				return err
			}
			defer s.close()
			s.trace(tracer)
			if p.getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			b, err := newBackend(cfg, log, s, newRegistry())
			if err != nil {
				return err
			}
			public, err := listen(cmd.Context(), "listen", cfg.listen)
			if err != nil {
				return err
			}
			admin, err := listen(cmd.Context(), "admin", cfg.admin)
			if err != nil {
				return err
			}
			log.Info("backend is up", "listen", public.Addr().String(), "admin", admin.Addr().String())
			return b.run(cmd.Context(), public, admin)
		},
	}
	f := c.Flags()
	p.str(f, &cfg.listen, "listen", envListen, defaultListen, "where to listen, host:port")
	p.str(f, &cfg.admin, "admin", envAdmin, defaultAdmin, "address of the admin listener, host:port; keep it private")
	p.str(f, &cfg.redisURL, "redis", envRedis, "", redisHelp)
	p.str(f, &cfg.database, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	p.queueFlags(f, &cfg)
	p.str(
		f,
		&cfg.journal.dir,
		"journal",
		envJournal,
		"",
		"directory for the journal of accepted orders that are not rows yet; not shared with another backend (default: no "+
			"journal)",
	)
	p.journalFlags(f, &cfg.journal)
	p.allowPrivateFlag(f, &cfg.hooks)
	p.str(f, &cfg.tokenKeys, "token-keys", envKeys, "", keysHelp+"; read again when it changes")
	p.pageFlags(f, &cfg)
	p.consoleFlags(f, &cfg)
	return c
}

// pageFlags are about the pages that buyers see.
func (p *program) pageFlags(f *pflag.FlagSet, cfg *backendConfig) {
	p.str(
		f,
		&cfg.signIn,
		"sign-in",
		envSignIn,
		"",
		"sign-in page for buyers without a token, https://shop.example/login?back={url}; it returns them with "+
			"#token=TOKEN (default: a field for the token)",
	)
}

func (cfg backendConfig) check() error {
	var bad problems
	bad.checkListen("listen", cfg.listen)
	bad.checkListen("admin", cfg.admin)
	bad.checkTokens(cfg.secret, cfg.tokenKeys)
	bad.checkJournal(cfg.journal)
	bad.checkShards(cfg.shards)
	bad.checkDriver(cfg.queue)
	bad.checkPrivate(cfg.hooks)
	bad.checkWebPushKeys(cfg.webPush)
	bad.checkMetricsURLs(cfg.edgeMetrics)
	if cfg.maxReady < 1 {
		bad.add("--max-ready must be at least 1")
	}
	bad.checkWait(cfg.redisWait, cfg.redisURL == embeddedURL)
	if cfg.adminToken == "" {
		bad.add("%s is not set: it protects the admin API", envAdminToken)
	}
	if cfg.redisURL == "" {
		bad.add("no Redis: set %s or --redis", envRedis)
	} else {
		bad.checkRedis("--redis", cfg.redisURL)
	}
	if cfg.limitRedisURL != "" {
		bad.checkRedis(envLimitRedis, cfg.limitRedisURL)
	}
	if cfg.database == "" {
		bad.add("no database: set %s or --database", envDatabase)
	}
	if _, err := buyer.New(buyer.Config{SignIn: cfg.signIn}); err != nil {
		bad.add("--sign-in: %v", err)
	}
	if cfg.paymentSecret != "" {
		if _, err := payment.NewVerifier(cfg.paymentSecret, time.Now); err != nil {
			bad.add("%s: %v", envPayment, err)
		}
	}
	if cfg.userRate != "" {
		if _, err := admission.NewUserLimiter(cfg.userRate, nil); err != nil {
			bad.add("%s: %v", envUserRate, err)
		}
	}
	return bad.err()
}

// gcPercent lets the heap grow to five times what is live before it is collected: a backend keeps little and makes
// much garbage, so collecting at the default costs a tenth of its time and saves a few megabytes. GOGC in the
// environment wins.
const gcPercent = 400
