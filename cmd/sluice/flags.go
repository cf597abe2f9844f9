package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/backend/redis/redisconn"
	"sluice/internal/assemble"
	"sluice/internal/origin"
	"sluice/internal/token"
	"sluice/internal/unixsocket"
	"sluice/nginx"
)

// The environment. Flags win over it, and it wins over the defaults.
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

	keysHelp = "JWK Set of the keys that verify tokens, a file or https://..., in addition to the secret or instead of it"
	dataHelp = "data directory of sluice up"
)

// problems collects all errors of a command line, so that they are reported together.
type problems []string

// add adds an error, once.
func (m *problems) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*m, text) {
		*m = append(*m, text)
	}
}

// check adds an error of a setting, if there is one.
func (m *problems) check(setting string, err error) {
	if err != nil {
		m.add("%s: %v", setting, err)
	}
}

func (m problems) err() error {
	if len(m) == 0 {
		return nil
	}
	return usage("%s", strings.Join(m, "; "))
}

// flagSet declares the flags of one command, and checks of their values. The checks run before the command.
type flagSet struct {
	*pflag.FlagSet
	getenv func(string) string
	checks []func(bad *problems)
}

// flags returns the flags of a command itself, not of its subcommands.
func (p *program) flags(c *cobra.Command) *flagSet {
	f := &flagSet{FlagSet: c.Flags(), getenv: p.getenv}
	c.PreRunE = func(*cobra.Command, []string) error {
		var bad problems
		for _, check := range f.checks {
			check(&bad)
		}
		return bad.err()
	}
	return f
}

// check adds a check.
func (f *flagSet) check(check func(bad *problems)) { f.checks = append(f.checks, check) }

// env returns the value of a variable, and the help of its flag with the variable's name.
func (f *flagSet) env(name, help string) (value, helpWithName string) {
	if name == "" {
		return "", help
	}
	return f.getenv(name), help + " [" + name + "]"
}

// str declares a string with its default from the variable env, if that is not empty.
func (f *flagSet) str(to *string, name, env, def, help string) {
	value, help := f.env(env, help)
	f.StringVar(to, name, cmp.Or(value, def), help)
}

// list declares a repeatable string, with its default from a variable, separated by commas.
func (f *flagSet) list(to *[]string, name, env, help string) {
	value, help := f.env(env, help)
	f.StringArrayVar(to, name, items(value), help)
}

// items splits a list at commas.
func items(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// number declares an integer between two bounds, with its default from the variable env, if that is not empty.
func (f *flagSet) number(to *int, name, env string, def, least, most int, help string) {
	value, help := f.env(env, help)
	def, err := parsed(value, def, strconv.Atoi)
	f.IntVar(to, name, def, help)
	withinFrom(f, to, name, variable{env, value, "a whole number", err}, least, most)
}

// duration is number for durations.
func (f *flagSet) duration(to *time.Duration, name, env string, def, least, most time.Duration, help string) {
	value, help := f.env(env, help)
	def, err := parsed(value, def, time.ParseDuration)
	f.DurationVar(to, name, def, help)
	withinFrom(f, to, name, variable{env, value, "a duration such as 30s", err}, least, most)
}

// parsed parses the value of a variable. It returns def for an empty or an invalid value.
func parsed[T any](value string, def T, parse func(string) (T, error)) (T, error) {
	if value == "" {
		return def, nil
	}
	v, err := parse(value)
	if err != nil {
		return def, err
	}
	return v, nil
}

// variable is the source of a default: an environment variable, with a value that is empty if it is not set.
type variable struct {
	name, value string
	kind        string // of the values, for messages
	err         error  // the value cannot be parsed
}

// within checks the bounds of a flag. A most of zero is no upper bound.
func within[T cmp.Ordered](f *flagSet, value *T, name string, least, most T) {
	withinFrom(f, value, name, variable{}, least, most)
}

// withinFrom checks the bounds of a flag, and names the variable if the value is from it.
func withinFrom[T cmp.Ordered](f *flagSet, value *T, name string, from variable, least, most T) {
	var none T
	f.check(func(bad *problems) {
		inside := least <= *value && (most == none || *value <= most) // not a number is not inside
		switch {
		case from.value != "" && !f.Changed(name):
			if from.err != nil || !inside {
				bad.add("%s=%s: want %s, %s", from.name, from.value, from.kind, bounds(least, most))
			}
		case !inside:
			bad.add("--%s must be %s", name, bounds(least, most))
		}
	})
}

// bounds describes the values from least to most. A most of zero is no upper bound.
func bounds[T cmp.Ordered](least, most T) string {
	var none T
	switch {
	case most != none:
		return fmt.Sprintf("between %v and %v", least, most)
	case any(least) == any(time.Nanosecond):
		return "positive, such as 10m"
	}
	return fmt.Sprintf("at least %v", least)
}

// oneOf declares a string of a few values, which are completed.
func (f *flagSet) oneOf(c *cobra.Command, to *string, name, env, def, help string, values ...string) {
	f.str(to, name, env, def, help)
	f.check(func(bad *problems) {
		switch want := strings.Join(values, " or "); {
		case *to == def || slices.Contains(values, *to):
		case env != "" && !f.Changed(name):
			bad.add("%s=%s: want %s", env, *to, want)
		default:
			bad.add("--%s %q: want %s", name, *to, want)
		}
	})
	fixed := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(name, fixed); err != nil {
		panic(err) // the flag does not exist: a programming error
	}
}

func (f *flagSet) json(to *bool) { f.BoolVar(to, "json", false, "print JSON") }

func (f *flagSet) metrics(to *string) {
	f.StringVar(to, "metrics", "", "address of the Prometheus metrics, host:port (default: no metrics)")
}

// redis declares the URL of Redis.
func (f *flagSet) redis(to *string) {
	f.str(to, "redis", envRedis, "", "Redis of the stock and the queue, redis://host:port/db, "+
		"redis://sentinel:26379/db?master_name=NAME, or redis+cluster://host:port,host:port")
	f.check(func(bad *problems) {
		if *to == "" {
			bad.add("no Redis: set %s or --redis", envRedis)
		} else {
			bad.checkRedis("--redis", *to)
		}
	})
}

// isCluster reports whether a URL names a Redis Cluster.
func isCluster(raw string) bool {
	return strings.HasPrefix(raw, "redis+cluster://") || strings.HasPrefix(raw, "rediss+cluster://")
}

func (m *problems) checkRedis(name, raw string) {
	if isCluster(raw) {
		if _, err := redisconn.NewServer(raw); err != nil {
			m.add("%s: %v", name, err)
		}
		return
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "" {
		m.add("%s: want redis://[user:password@]host:port/db", name)
	}
}

// database declares the URL of the database.
func (f *flagSet) database(to *string) {
	f.str(to, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	f.check(func(bad *problems) {
		if *to == "" {
			bad.add("no database: set %s or --database", envDatabase)
		}
	})
}

// maxShards bounds the shards: each costs every worker a few waiting connections, and every look at the queue a round
// trip.
const maxShards = 64

func (f *flagSet) shards(to *int) {
	f.number(to, "shards", envShards, 1, 1, maxShards,
		"number of queues; each sale lives in one of them; equal in every process and permanent")
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
}

// edgeFlags are the flags of both edges.
type edgeFlags struct {
	listen, tokenKeys, secret string
	expect                    token.Expect
	keys                      *token.File // of tokenKeys and secret
	upstreams                 []string
	perClient                 int
	proxyProtocol             bool
	tlsCert, tlsKey           string
	corsOrigins               []string
	limitRedis                string
}

// edge declares them. keysRead states when the token keys are read again; spoken are the protocols that a certificate
// enables.
func (f *flagSet) edge(to *edgeFlags, keysRead, spoken string) {
	to.secret = f.getenv(envSecret)
	f.listen(&to.listen, "listen", envListen, defaultListen, "address to listen on, host:port")
	f.list(&to.upstreams, "upstream", envUpstream,
		"a backend, http://host:port, or unix:/path on this machine; repeatable")
	f.str(&to.tokenKeys, "token-keys", envKeys, "", keysHelp+"; "+keysRead)
	f.expect(&to.expect)
	f.corsOrigins(&to.corsOrigins)
	f.number(&to.perClient, "per-client", "", nginx.DefaultPerClient, 1, 65535,
		"maximum concurrent requests of one client")
	f.BoolVar(&to.proxyProtocol, "proxy-protocol", false,
		"every connection begins with a PROXY header (v1 or v2), used if it comes from the policy's trusted_proxies")
	f.StringVar(&to.tlsCert, "tls-cert", "", "certificate with its chain, PEM: serve "+spoken)
	f.StringVar(&to.tlsKey, "tls-key", "", "its key, PEM")
	f.check(func(bad *problems) {
		if len(to.upstreams) == 0 {
			bad.add("--upstream is missing: want http://host:port or unix:/path, once for each backend")
		}
		for i, raw := range to.upstreams {
			if unixsocket.IsAddress(raw) {
				bad.checkSocket("upstream", raw)
				continue
			}
			raw = withScheme(raw)
			to.upstreams[i] = raw
			if u, err := parseOrigin(raw); err != nil || u.Scheme != "http" || u.Port() == "" {
				bad.add("--upstream %q: want http://host:port or unix:/path", raw)
			}
		}
		to.keys = bad.checkTokens(to.secret, to.tokenKeys, to.expect)
		if (to.tlsCert == "") != (to.tlsKey == "") {
			bad.add("--tls-cert and --tls-key go together")
		}
	})
}

// limitRedis declares the Redis server of limits that all edges share.
func (f *flagSet) limitRedis(to *string) {
	f.str(to, "limit-redis", envLimitRedis, "", "Redis of the rules with scope = \"fleet\", redis://host:port/db, "+
		"or redis://sentinel:26379/db?master_name=NAME; the same at all edges")
	f.check(func(bad *problems) {
		if *to != "" {
			bad.checkRedis("--limit-redis", *to)
		}
	})
}

// withScheme returns host:port as http://host:port, and anything else unchanged.
func withScheme(raw string) string {
	if _, port, err := net.SplitHostPort(raw); err == nil && port != "" && !strings.Contains(raw, "://") {
		return "http://" + raw
	}
	return raw
}

// corsOrigins declares the flag of edges.
func (f *flagSet) corsOrigins(to *[]string) {
	f.list(to, "cors-origins", envCORSOrigins, "origin of a site whose pages may call the API, https://shop.example; "+
		"repeatable (default: none)")
	f.check(func(bad *problems) {
		for _, o := range *to {
			bad.check("--cors-origins", origin.Check(o))
		}
	})
}

// parseOrigin parses http://host:port or https://host, without more.
func parseOrigin(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q: want http://host:port", raw)
	}
	return u, nil
}

func (m *problems) checkSecret(secret string) {
	switch {
	case secret == "":
		m.add("%s is not set: it must hold at least %d bytes (openssl rand -hex 32 makes one)", envSecret, token.MinSecret)
	case len(secret) < token.MinSecret:
		m.add("%s has %d bytes: it must hold at least %d", envSecret, len(secret), token.MinSecret)
	}
}

// checkTokens wants a secret, valid keys, or both, and returns what verifies tokens. Keys at a URL are not fetched yet.
func (m *problems) checkTokens(secret, keys string, expect token.Expect) *token.File {
	switch {
	case keys == "" && secret == "":
		m.add("%s is not set: it must hold at least %d bytes (openssl rand -hex 32 makes one), or --token-keys must name "+
			"a file of keys or a URL", envSecret, token.MinSecret)
		return nil
	case secret != "" && len(secret) < token.MinSecret:
		m.checkSecret(secret)
		return nil
	}
	file, err := token.OpenWith(keys, secret, token.Options{Expect: expect})
	m.check("--token-keys", err)
	return file
}
