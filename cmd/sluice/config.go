package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"sluice/internal/token"
)

// The environment. Flags win over it, and it wins over the defaults.
const (
	envListen      = "SLUICE_LISTEN"
	envAdmin       = "SLUICE_ADMIN_LISTEN"
	envAdminToken  = "SLUICE_ADMIN_TOKEN"
	envSecret      = "SLUICE_TOKEN_SECRET"
	envRedis       = "SLUICE_REDIS_URL"
	envLimitRedis  = "SLUICE_LIMIT_REDIS_URL"
	envDatabase    = "SLUICE_DATABASE_URL"
	envKeys        = "SLUICE_TOKEN_KEYS"
	envPolicy      = "SLUICE_POLICY"
	envData        = "SLUICE_DATA"
	envUserRate    = "SLUICE_USER_RATE"
	envUpstream    = "SLUICE_UPSTREAM"
	envServer      = "SLUICE_SERVER"
	envPayment     = "SLUICE_PAYMENT_SECRET"
	envAdminName   = "SLUICE_ADMIN_NAME"
	envSignIn      = "SLUICE_SIGN_IN"
	envEdgeMetrics = "SLUICE_EDGE_METRICS"
)

const redisHelp = "Redis of the stock and the queue, redis://host:port/db, or " +
	"redis://sentinel:26379/db?master_name=NAME"

const (
	defaultListen = "127.0.0.1:8080"
	defaultAdmin  = "127.0.0.1:8081"
	defaultData   = ".sluice"
)

// str adds a string flag with its default from the environment.
func (p *program) str(f *pflag.FlagSet, to *string, name, env, def, help string) {
	if env != "" {
		help += " [" + env + "]"
		if v := p.getenv(env); v != "" {
			def = v
		}
	}
	f.StringVar(to, name, def, help)
}

// problems collects all errors of a configuration, so that they are reported together.
type problems []string

func (m *problems) add(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

func (m problems) err() error {
	if len(m) == 0 {
		return nil
	}
	return usage("%s", strings.Join(m, "; "))
}

func (m *problems) checkListen(flag, addr string) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		m.add("--%s %q: want host:port", flag, addr)
	}
}

// listen opens a listener for the address that a flag gave.
func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, usage("--%s: %w", flag, err)
	}
	return ln, nil
}

func (m *problems) checkSecret(secret string) {
	switch {
	case secret == "":
		m.add("%s is not set: it must hold at least %d bytes (openssl rand -hex 32 makes one)", envSecret, token.MinSecret)
	case len(secret) < token.MinSecret:
		m.add("%s has %d bytes: it must hold at least %d", envSecret, len(secret), token.MinSecret)
	}
}

// checkTokens wants a secret, a good file of keys, or both.
func (m *problems) checkTokens(secret, keys string) {
	switch {
	case keys == "" && secret == "":
		m.add(
			"%s is not set: it must hold at least %d bytes (openssl rand -hex 32 makes one), or --token-keys must name a "+
				"file of keys",
			envSecret,
			token.MinSecret,
		)
	case secret != "" && len(secret) < token.MinSecret:
		m.checkSecret(secret)
	case keys != "":
		if _, err := token.Open(keys, secret); err != nil {
			m.add("--token-keys: %v", err)
		}
	}
}

const keysHelp = "JWK Set file of the keys that tokens are verified with, beside the secret or instead of it"

func (m *problems) checkRedis(name, raw string) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") || u.Host == "" {
		m.add("%s: want redis://[user:password@]host:port/db", name)
	}
}

func (m *problems) checkUpstreams(upstreams []string) {
	if len(upstreams) == 0 {
		m.add("--upstream is missing: want http://host:port, once for each backend")
	}
	for _, raw := range upstreams {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.Port() == "" || (u.Path != "" && u.Path != "/") ||
			u.RawQuery != "" ||
			u.User != nil {
			m.add("--upstream %q: want http://host:port", raw)
		}
	}
}

// list is a default from the environment for a repeatable flag, separated by commas.
func (p *program) list(env string) []string {
	var items []string
	for item := range strings.SplitSeq(p.getenv(env), ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
