package assemble

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
)

// EmbeddedRedis is a Redis server in this process that no other process reaches. It is empty when it starts.
type EmbeddedRedis struct {
	stop context.CancelFunc

	mu     sync.Mutex
	server *miniredis.Miniredis // nil after Close
}

// expireEvery is the interval at which the embedded Redis expires keys. Each step visits all keys.
const expireEvery = time.Second

// StartEmbeddedRedis runs a Redis without a network until Close is called.
func StartEmbeddedRedis(ctx context.Context) (*EmbeddedRedis, error) {
	m := miniredis.NewMiniRedis()
	first, err := m.Dial() // starts it
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	_ = first.Close()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	last := time.Now()
	go func() {
		for range loop.Ticks(ctx, expireEvery) { // miniredis expires keys only when its clock advances
			now := time.Now()
			m.FastForward(now.Sub(last))
			last = now
		}
	}()
	return &EmbeddedRedis{server: m, stop: stop}, nil
}

// Close ends the server and its connections. A second call does nothing.
func (e *EmbeddedRedis) Close() {
	e.stop()
	e.mu.Lock()
	server := e.server
	e.server = nil
	e.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// url returns a URL that the parser of Redis URLs accepts. Clients do not connect to it; see option.
func (*EmbeddedRedis) url() string { return "redis://embedded/0" }

// option makes clients connect within the process.
func (e *EmbeddedRedis) option() redisconn.Option { return redisconn.Dial(e.dial) }

// dial connects within the process. A closed client may still dial in the background.
func (e *EmbeddedRedis) dial() (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		return nil, net.ErrClosed
	}
	client, server := memoryPipe()
	e.server.Server().ServeConn(server)
	return client, nil
}
