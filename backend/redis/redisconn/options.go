package redisconn

import (
	"cmp"
	"context"
	"net"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// connector opens clients. It is an interface so that a Server has no type of go-redis's clients; see Client.
type connector interface {
	// open returns a client. finding is the longest time to find the master; it is added to the timeout of a dial.
	open(s settings, finding time.Duration) Client
	// at returns a copy with another address; nil: the default dialer.
	at(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) connector
	addr() string
	credentials() (user, password string)
}

// options are those of a URL.
type options redis.Options

var withoutMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func (of *options) open(s settings, finding time.Duration) Client {
	o := redis.Options(*of)
	o.DialTimeout = cmp.Or(s.timeouts, DialTimeout) + finding
	o.DialerRetries = 1
	o.ReadTimeout = cmp.Or(s.timeouts, IOTimeout)
	if s.long {
		o.ReadTimeout = longTimeout
	}
	o.WriteTimeout = o.ReadTimeout
	o.PoolTimeout = cmp.Or(s.timeouts, IOTimeout)
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 1
	if s.once {
		o.MaxRetries = -1
	}
	o.MaintNotificationsConfig = withoutMaintenance
	if s.blocking > 0 {
		o.PoolSize = 10*runtime.GOMAXPROCS(0) + s.blocking
	}
	if s.onConnect != nil {
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return s.onConnect(ctx, cn) }
	}
	if s.dial != nil {
		const buffer = 4 << 10 // bytes
		o.ReadBufferSize, o.WriteBufferSize = buffer, buffer
		o.PipelineReadBufferSize, o.PipelineWriteBufferSize = buffer, buffer
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return s.dial() }
		o.DisableIdentity = true
	}
	client := redis.NewClient(&o)
	client.AddHook(Around(connectionErrors))
	return client
}

func (of *options) at(addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) connector {
	o := *of
	o.Addr, o.Dialer = addr, dial
	return &o
}

func (of *options) addr() string { return of.Addr }

func (of *options) credentials() (user, password string) { return of.Username, of.Password }
