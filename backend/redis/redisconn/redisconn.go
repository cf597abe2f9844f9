// Package redisconn opens connections to Redis with bounded timeouts: a call to a slow or unreachable Redis fails
// within the limits below, and the next call works when Redis is available again. It follows the master that Redis
// Sentinels or the nodes of a Redis Cluster report, and provides a lock and a pipelining client. Except for the prefix
// of all keys (Route), it does not depend on their names.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// Timeouts of one command. A command may be retried once, so the worst case is twice their sum. With Sentinels or a
// Redis Cluster, the query for the master adds to each attempt.
const (
	DialTimeout = 500 * time.Millisecond
	IOTimeout   = time.Second
)

// Option changes the settings of a client.
type Option func(*settings)

// settings are those of a client beside its Server. They have no type of go-redis's clients; see Client.
type settings struct {
	onConnect func(ctx context.Context, cn Connection) error // nil: every connection is used
	dial      func() (net.Conn, error)                       // nil: the dialer of the Server
	timeouts  time.Duration                                  // of dials, reads, writes and the pool; 0: the constants
	long      bool
	once      bool
	blocking  int
}

// OnConnect sets a check of every new connection. If it returns an error, the connection is closed and the command
// fails with that error.
func OnConnect(check func(ctx context.Context, cn Connection) error) Option {
	return func(s *settings) { s.onConnect = check }
}

// Dial replaces the dialer, for a server in this process. The connections have small buffers, because larger ones only
// save system calls.
func Dial(dial func() (net.Conn, error)) Option { return func(s *settings) { s.dial = dial } }

// Timeouts sets all timeouts.
func Timeouts(d time.Duration) Option { return func(s *settings) { s.timeouts = d } }

// LongTimeouts sets longer read and write timeouts, for commands that take long in Redis.
func LongTimeouts(s *settings) { s.long = true }

const longTimeout = 20 * time.Second

// Once makes a client send each command once, for commands that are not replay-safe.
func Once(s *settings) { s.once = true }

// Blocking adds n connections to the pool, for calls that block in Redis.
func Blocking(n int) Option { return func(s *settings) { s.blocking = n } }

// Server is one Redis: an address, the master that Sentinels report, or a Redis Cluster. Its clients share the known
// master. It is safe for concurrent use.
type Server struct {
	options connector
	master  *master  // nil for an address
	cluster *cluster // nil without one; otherwise master is that of one slot
}

// NewServer parses a URL: redis://[user:password@]host:port/db, rediss:// for TLS, or unix://[user:password@]/path?db=N
// for a Unix socket. The URL of a Sentinel has the user and password of the Sentinels; its query names the master,
// further Sentinels, and the user and password of Redis:
//
//	redis://[user:password@]sentinel:26379/db?master_name=shop&addr=sentinel2:26379&username=U&password=P
//
// The URL of a Redis Cluster names some of its nodes (rediss+cluster:// for TLS):
//
//	redis+cluster://[user:password@]host:port,host:port
//
// The error does not contain a password.
func NewServer(raw string) (*Server, error) {
	if IsCluster(raw) {
		c, err := parseCluster(raw)
		if err != nil {
			return nil, err
		}
		return c.server(0), nil
	}
	if u, err := url.Parse(raw); err == nil && u.Query().Has("master_name") {
		s, o, err := parseSentinels(u)
		if err != nil {
			return nil, err
		}
		m := &master{finder: s, tls: o.TLSConfig, open: map[*trackedConn]struct{}{}}
		o.Addr, o.Dialer = s.name, m.dial
		return &Server{options: (*options)(o), master: m}, nil
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, errors.New("bad Redis URL: want redis://[user:password@]host:port/db or unix:///path?db=N")
	}
	return &Server{options: (*options)(o)}, nil
}

// IsCluster reports whether the keys of this Redis are on several servers.
func (s *Server) IsCluster() bool { return s.cluster != nil }

// For returns the server of a key: of a Redis Cluster, the master of the key's slot, which can change; otherwise s. A
// client of it must not be used for keys with another hash tag.
func (s *Server) For(key string) *Server {
	if s.cluster == nil {
		return s
	}
	return s.cluster.server(slotOf(key))
}

// Slot returns the slot of a Redis Cluster that s serves; ok is false without a cluster.
func (s *Server) Slot() (slot int, ok bool) {
	if s.cluster == nil {
		return 0, false
	}
	of, ok := s.master.finder.(slotMaster)
	return of.slot, ok
}

// Master returns the address of the server: with Sentinels or a Redis Cluster, that of the current master.
func (s *Server) Master(ctx context.Context) (addr string, err error) {
	if s.master == nil {
		return s.options.addr(), nil
	}
	return s.master.find(ctx)
}

// Watch queries for the master repeatedly until stop is called, from one queryInterval on. If another server is the
// master, the connections to the old one are closed, so that a command that it does not answer fails early. For one
// address it does nothing.
func (s *Server) Watch() (stop func()) {
	if s.master == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.Background())
	go s.master.follow(ctx, func(string) {}) // find closes the connections
	return stop
}

// Open returns a client. It does not connect. A client of a cluster serves the keys of one slot; see For. The client
// repeats a command if the reply is lost, so commands must be replay-safe.
func (s *Server) Open(options ...Option) Client {
	set := settings{}
	for _, option := range options {
		option(&set)
	}
	finding := time.Duration(0)
	if s.master != nil {
		finding = s.master.finder.limit()
	}
	client := s.options.open(set, finding)
	if s.cluster != nil {
		client.AddHook(followMoves(s.master))
	}
	return client
}

// Open returns the only client of a new Server; see NewServer.
func Open(url string, options ...Option) (Client, error) {
	s, err := NewServer(url)
	if err != nil {
		return nil, err
	}
	return s.Open(options...), nil
}

// Quiet logs the messages of the Redis client library at debug level. The library reports each failed dial, thousands
// under load.
func Quiet(log *slog.Logger) { redis.SetLogger(quiet{log}) }

type quiet struct{ log *slog.Logger }

func (q quiet) Printf(ctx context.Context, format string, v ...any) {
	if q.log.Enabled(ctx, slog.LevelDebug) {
		q.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
	}
}
