// Package redisconn opens connections to Redis with the time limits that sluice promises: whatever Redis does, a call ends soon, and when Redis
// is back the next call works. It knows nothing of what is stored.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Limits of one command. A command may be tried twice, so the worst case is twice their sum, and askTimeout more each time where Sentinels are asked for the master.
const (
	DialTimeout = 500 * time.Millisecond
	IOTimeout   = time.Second
)

// Option changes how Open opens a client.
type Option func(*redis.Options)

// OnConnect is asked about every new connection; an error closes it and is the answer to the command that needed it.
func OnConnect(check func(ctx context.Context, cn *redis.Conn) error) Option {
	return func(o *redis.Options) { o.OnConnect = check }
}

// Patient waits longer for each answer, for work that may take Redis a while.
func LongTimeouts(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = longTimeout, longTimeout }

const longTimeout = 20 * time.Second

// Blocking leaves room in the pool for so many calls that wait in Redis.
func Blocking(n int) Option {
	return func(o *redis.Options) { o.PoolSize = 10*runtime.GOMAXPROCS(0) + n }
}

// Server is one Redis, by its address or as the master that Sentinels name. What its clients find out about the master they share. It is safe for concurrent use.
type Server struct {
	options redis.Options
	master  *master // nil: by its address
}

// At reads a URL: redis://[user:password@]host:port/db, or rediss:// for TLS; or that of a Sentinel, with the user and password that Sentinels ask for, and the rest in its query:
//
//	redis://[user:password@]sentinel:26379/db?master_name=shop&addr=sentinel2:26379&addr=sentinel3:26379&username=U&password=P
//
// username and password are those of Redis itself. The error never shows a password.
func NewServer(raw string) (*Server, error) {
	if u, err := url.Parse(raw); err == nil && behindSentinel(u) {
		s, o, err := parseSentinels(u)
		if err != nil {
			return nil, err
		}
		m := &master{sentinels: s, tls: o.TLSConfig, open: map[*trackedConn]struct{}{}}
		o.Addr, o.Dialer = s.name, m.dial
		return &Server{options: *o, master: m}, nil
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, errors.New("bad Redis URL: want redis://[user:password@]host:port/db")
	}
	return &Server{options: *o}, nil
}

// Open makes a client. It does not connect yet. Commands may be sent twice when a reply is lost, so only replay-safe ones may be used.
func (s *Server) Open(options ...Option) *redis.Client {
	o := s.options
	limit(&o, options)
	if s.master != nil {
		o.DialTimeout += s.master.sentinels.timeout
	}
	return redis.NewClient(&o)
}

// Open makes the only client of a Server; see At.
func Open(url string, options ...Option) (*redis.Client, error) {
	s, err := NewServer(url)
	if err != nil {
		return nil, err
	}
	return s.Open(options...), nil
}

// limit sets the time limits, and then what the options say.
func limit(o *redis.Options, options []Option) {
	o.DialTimeout = DialTimeout
	o.DialerRetries = 1
	o.ReadTimeout, o.WriteTimeout = IOTimeout, IOTimeout
	o.PoolTimeout = IOTimeout
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 1
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for _, option := range options {
		option(o)
	}
}

// Quiet sends what the Redis client library logs (each failed dial, under load thousands) to debug level.
func Quiet(log *slog.Logger) { redis.SetLogger(quiet{log}) }

type quiet struct{ log *slog.Logger }

func (q quiet) Printf(ctx context.Context, format string, v ...any) {
	if q.log.Enabled(ctx, slog.LevelDebug) {
		q.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
