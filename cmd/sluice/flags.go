package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/internal/assemble"
	"sluice/internal/edgeconfig"
	"sluice/internal/origin"
	"sluice/internal/reload"
	"sluice/internal/token"
)

// The environment variables. A flag takes precedence over its variable, and a variable over the default.
const (
	envListen              = "SLUICE_LISTEN"
	envAdmin               = "SLUICE_ADMIN_LISTEN"
	envAdminToken          = "SLUICE_ADMIN_TOKEN"
	envAdminName           = "SLUICE_ADMIN_NAME"
	envSecret              = "SLUICE_TOKEN_SECRET"
	envKeys                = "SLUICE_TOKEN_KEYS"
	envIssuer              = "SLUICE_TOKEN_ISSUER"
	envAudience            = "SLUICE_TOKEN_AUDIENCE"
	envRedis               = "SLUICE_REDIS_URL"
	envLimitRedis          = "SLUICE_LIMIT_REDIS_URL"
	envWait                = "SLUICE_REDIS_WAIT"
	envDatabase            = "SLUICE_DATABASE_URL"
	envOrdersReplica       = "SLUICE_ORDERS_REPLICA_URL"
	envShards              = "SLUICE_SHARDS"
	envMaxReady            = "SLUICE_MAX_READY"
	envQueue               = "SLUICE_QUEUE"
	envJournal             = "SLUICE_JOURNAL"
	envJournalSync         = "SLUICE_JOURNAL_SYNC"
	envPolicy              = "SLUICE_POLICY"
	envData                = "SLUICE_DATA"
	envUserRate            = "SLUICE_USER_RATE"
	envUpstream            = "SLUICE_UPSTREAM"
	envServer              = "SLUICE_SERVER"
	envPayment             = "SLUICE_PAYMENT_SECRET"
	envSignIn              = "SLUICE_SIGN_IN"
	envCheckout            = "SLUICE_CHECKOUT"
	envFrameAncestors      = "SLUICE_FRAME_ANCESTORS"
	envCORSOrigins         = "SLUICE_CORS_ORIGINS"
	envEdgeMetrics         = "SLUICE_EDGE_METRICS"
	envPoints              = "SLUICE_POINTS"
	envAllowPrivate        = "SLUICE_ALLOW_PRIVATE"
	envWebhookTimeout      = "SLUICE_WEBHOOK_TIMEOUT"
	envWebPushContact      = "SLUICE_WEB_PUSH_CONTACT"
	envWebPushAllowPrivate = "SLUICE_WEB_PUSH_ALLOW_PRIVATE"
	envVAPID               = "SLUICE_VAPID_KEY"
)

const (
	defaultListen = "127.0.0.1:8080"
	defaultAdmin  = "127.0.0.1:8081"
	defaultData   = ".sluice"

	exampleMetrics = "127.0.0.1:9102"

	keysHelp = "JWK Set of the keys that verify tokens, a file or https://..., in addition to the secret or instead of it"
	dataHelp = "data directory of sluice up"
)

func (f *flagSet) json(to *bool) { f.BoolVar(to, "json", false, "print JSON") }

func (f *flagSet) metrics(to *string) {
	f.StringVar(to, "metrics", "", "address of the Prometheus metrics, host:port (default: no metrics)")
	f.check(func(bad *problems) {
		if *to != "" {
			bad.checkHostPort("metrics", *to, exampleMetrics)
		}
	})
}

func (f *flagSet) redis(to *string) {
	f.str(to, "redis", envRedis, "", "Redis of the stock and the queue, redis://host:port/db, "+
		"unix:///path?db=N, redis://sentinel:26379/db?master_name=NAME, or redis+cluster://host:port,host:port")
	f.check(func(bad *problems) {
		if *to == "" {
			bad.add("no Redis: set %s or --redis", envRedis)
		} else {
			bad.checkRedis(f.source("redis", envRedis), *to)
		}
	})
}

func (m *problems) checkRedis(name, raw string) {
	u, err := url.Parse(raw)
	isSocket := err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/")
	if !redisconn.IsCluster(raw) && !isSocket &&
		(err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "") {
		m.add("%s: want redis://[user:password@]host:port/db or unix:///path?db=N", name)
		return
	}
	_, err = redisconn.NewServer(raw)
	m.check(name, err)
}

// checkLimitRedis checks the Redis of limits. It rejects a cluster, because the keys of limits are in several slots.
func (m *problems) checkLimitRedis(name, raw string) {
	if redisconn.IsCluster(raw) {
		m.add("%s: a Redis Cluster cannot count for the limit: name one Redis, or Sentinels", name)
		return
	}
	m.checkRedis(name, raw)
}

func (f *flagSet) database(to *string) {
	f.str(to, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	f.check(func(bad *problems) {
		if *to == "" {
			bad.add("no database: set %s or --database", envDatabase)
		} else {
			bad.checkDatabase(f.source("database", envDatabase), *to)
		}
	})
}

func (m *problems) checkDatabase(name, raw string) {
	if bad, ok := errors.AsType[*store.URLError](store.CheckURL(raw)); ok {
		m.add("%s: %s", name, bad.Detail)
	}
}

// maxShards bounds the number of shards. Every shard adds a few waiting connections to each worker, and a round trip to
// each read of the queue's state.
const maxShards = 64

func (f *flagSet) shards(to *int) {
	f.number(to, "shards", envShards, 1, 1, maxShards,
		"number of queues over which sales are distributed; equal in every process, and a change stops every sale")
}

func (f *flagSet) stores(to *assemble.StoresConfig) {
	f.redis(&to.Redis)
	f.database(&to.Database)
	f.shards(&to.Shards)
}

func (f *flagSet) queue(c *cobra.Command, to *string) {
	f.oneOf(c, to, "queue", envQueue, assemble.DriverList,
		`structure for new orders in Redis: "list", the faster one, or "stream"; orders in the other are processed too`,
		assemble.DriverList, assemble.DriverStream)
}

// expect declares the claims that verifiers require and that sluice token writes.
func (f *flagSet) expect(to *token.Expect) {
	f.str(&to.Issuer, "token-issuer", envIssuer, "", "iss of all tokens (default: not checked)")
	f.str(&to.Audience, "token-audience", envAudience, "", "aud of all tokens, or a member of it (default: not checked)")
	f.filled("token-issuer", "token-audience")
}

type edgeFlags struct {
	edgeconfig.Shared
	listen, limitRedis string
	keys               *token.Keys // of TokenKeys and Secret
}

// edge declares the flags that both edges share. keysRead states when the token keys are read again; spoken are the
// protocols that a certificate enables.
func (f *flagSet) edge(to *edgeFlags, keysRead, spoken string) {
	to.Secret = f.getenv(envSecret)
	f.listen(&to.listen, "listen", envListen, defaultListen, "address to listen on, host:port")
	f.list(&to.Upstreams, "upstream", envUpstream,
		"a backend, http://host:port, or unix:/path on this machine; repeatable")
	f.str(&to.TokenKeys, "token-keys", envKeys, "", keysHelp+"; "+keysRead)
	f.expect(&to.Expect)
	f.corsOrigins(&to.CORSOrigins)
	f.number(&to.PerClient, "per-client", "", edgeconfig.DefaultPerClient, 1, 65535,
		"maximum concurrent requests of one client")
	f.str(&to.limitRedis, "limit-redis", envLimitRedis, "", "Redis of the rules with scope = \"fleet\", "+
		"redis://host:port/db, unix:///path?db=N, or redis://sentinel:26379/db?master_name=NAME; the same at all edges")
	f.BoolVar(&to.ProxyProtocol, "proxy-protocol", false,
		"every connection begins with a PROXY header (v1 or v2), used if it comes from the policy's trusted_proxies")
	f.StringVar(&to.TLSCert, "tls-cert", "", "certificate with its chain, PEM: serve "+spoken)
	f.StringVar(&to.TLSKey, "tls-key", "", "private key of --tls-cert, PEM")
	f.filled("tls-cert", "tls-key")
	f.check(func(bad *problems) {
		for _, err := range to.Shared.Check() {
			bad.add("%v", err)
		}
		to.keys = bad.checkTokens(to.Secret, to.TokenKeys, to.Expect)
		bad.checkPEM("tls-cert", to.TLSCert)
		bad.checkPEM("tls-key", to.TLSKey)
		if to.limitRedis != "" {
			bad.checkLimitRedis(f.source("limit-redis", envLimitRedis), to.limitRedis)
		}
	})
}

// checkPEM checks that a file, if a flag names one, begins like a certificate or a key.
func (m *problems) checkPEM(flag, file string) {
	if file == "" || reload.IsPipe(file) { // a pipe can be read once
		return
	}
	text, err := reload.ReadFile(file, reload.MaxPEM)
	if block, _ := pem.Decode(text); err == nil && block == nil {
		err = fmt.Errorf("%s has no PEM block (-----BEGIN ...): name a PEM file", file)
	}
	m.check("--"+flag, err)
}

// withScheme returns host:port as http://host:port, and anything else unchanged.
func withScheme(raw string) string {
	if _, port, err := net.SplitHostPort(raw); err == nil && port != "" && port[0] != '/' {
		return "http://" + raw
	}
	return raw
}

func (f *flagSet) corsOrigins(to *[]string) {
	f.list(to, "cors-origins", envCORSOrigins, "origin of a site whose pages may call the API, https://shop.example; "+
		"repeatable (default: none)")
	f.check(func(bad *problems) {
		for _, o := range *to {
			bad.check("--cors-origins", origin.Check(o))
		}
	})
}

// parseOrigin parses http://host:port or https://host, without a path, a query or a user.
func parseOrigin(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q: want http://host:port", raw)
	}
	return u, nil
}

func shortSecret(secret string) error {
	return usage("%s has %d bytes: it must hold at least %d", envSecret, len(secret), token.MinSecret)
}

// checkTokens returns the keys that verify tokens. It reports an error unless there is a secret, a source of valid
// keys, or both. Keys at a URL are not fetched yet.
func (m *problems) checkTokens(secret, keys string, expect token.Expect) *token.Keys {
	switch {
	case keys == "" && secret == "":
		m.add("%s is not set: it must hold at least %d bytes (openssl rand -hex 32 makes one), or --token-keys must name "+
			"a file of keys or a URL", envSecret, token.MinSecret)
		return nil
	case secret != "" && len(secret) < token.MinSecret:
		m.add("%v", shortSecret(secret))
		return nil
	}
	file, err := token.Open(keys, secret, token.Options{Expect: expect})
	m.check("--token-keys", err)
	return file
}
