package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
)

// openRedis starts an embedded Redis without a network and registers the scripts. names maps their digests to their
// names.
func openRedis() (mini *miniredis.Miniredis, names map[string]string, err error) {
	mini = miniredis.NewMiniRedis()
	first, err := mini.Dial() // starts it
	if err != nil {
		return nil, nil, err
	}
	first.Close()
	client := connect(mini)
	defer client.Close()
	names = map[string]string{}
	for _, name := range redisscript.Names() {
		script := redisscript.Load(name)
		if err := script.Load(context.Background(), client).Err(); err != nil {
			return nil, nil, fmt.Errorf("%s.lua: %w", name, err)
		}
		names[script.Hash()] = name
	}
	return mini, names, nil
}

// connect returns a client without faults.
func connect(mini *miniredis.Miniredis) redisconn.Client { return redis.NewClient(options(mini, nil)) }

// options returns options for a client that runs its calls immediately in the goroutine of the caller: no socket, no
// goroutine, and no order that the seed has not chosen. A change of servers, if given, cuts its connections.
func options(mini *miniredis.Miniredis, servers *atomic.Int64) *redis.Options {
	if servers == nil {
		servers = &atomic.Int64{}
	}
	dial := dialer(mini, servers)
	return &redis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return dial() },
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 64,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// dialer opens connections; see options.
func dialer(mini *miniredis.Miniredis, servers *atomic.Int64) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		c := &wire{server: mini.Server(), servers: servers, made: servers.Load()}
		c.peer = server.NewPeer(bufio.NewWriter(&c.replies))
		return c, nil
	}
}

// wire is a connection that hands each whole command to the server as it is written.
type wire struct {
	server  *server.Server
	servers *atomic.Int64
	made    int64 // number of servers when the connection was opened
	peer    *server.Peer
	asked   bytes.Buffer
	replies bytes.Buffer
}

func (c *wire) Write(b []byte) (int, error) {
	if c.servers.Load() != c.made {
		return 0, io.ErrClosedPipe
	}
	c.asked.Write(b)
	for {
		args, size, err := readCommand(c.asked.Bytes())
		if err != nil {
			return 0, err
		}
		if size == 0 {
			return len(b), nil
		}
		c.asked.Next(size)
		c.server.Dispatch(c.peer, args)
		c.peer.Flush()
	}
}

// readCommand reads one command, an array of bulk strings; size 0 when it is not whole yet.
func readCommand(b []byte) (args []string, size int, err error) {
	n, at, err := readCount(b, 0, '*')
	if err != nil || at == 0 {
		return nil, 0, err
	}
	for range n {
		size, begin, err := readCount(b, at, '$')
		if err != nil || begin == 0 || len(b) < begin+size+2 {
			return nil, 0, err
		}
		args = append(args, string(b[begin:begin+size]))
		at = begin + size + 2
	}
	return args, at, nil
}

func readCount(b []byte, at int, kind byte) (n, after int, err error) {
	end := bytes.IndexByte(b[at:], '\n')
	if end < 0 {
		return 0, 0, nil
	}
	line := strings.TrimSuffix(string(b[at:at+end]), "\r")
	if line == "" || line[0] != kind {
		return 0, 0, fmt.Errorf("sim: a command begins with %q", line)
	}
	n, err = strconv.Atoi(line[1:])
	return n, at + end + 1, err
}

func (c *wire) Read(b []byte) (int, error) {
	if c.replies.Len() == 0 {
		return 0, io.EOF
	}
	return c.replies.Read(b)
}

func (c *wire) Close() error                     { return nil }
func (c *wire) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (c *wire) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (c *wire) SetDeadline(time.Time) error      { return nil }
func (c *wire) SetReadDeadline(time.Time) error  { return nil }
func (c *wire) SetWriteDeadline(time.Time) error { return nil }

// faultyRedis stands between a process's client and Redis.
type faultyRedis struct {
	p  *process
	of string // names the client in the order of calls; "" if the process has one
}

func (h faultyRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h faultyRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" || cmd.Name() == "client" {
			return next(ctx, cmd)
		}
		if strings.EqualFold(cmd.Name(), "blpop") {
			return h.wait(ctx, cmd)
		}
		args := cmd.Args()
		if isLook(cmd) {
			return h.p.look(h.of, func() error { return next(ctx, cmd) })
		}
		what, watch := h.p.w.describe(args)
		err := h.p.do(what+shardOf(cmd),
			func() error { return watch(func() error { return next(ctx, cmd) }) },
			func() error {
				return watch(func() error { return h.p.w.redis.Do(context.Background(), args...).Err() })
			})
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// shardOf names the shard of a command or pipeline in the trace. Calls of one process to several shards that have the
// same name would have no order.
func shardOf(cmds ...redis.Cmder) string {
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok && strings.HasPrefix(key, "sluice:{") {
				if shard, ok := keyspace.ShardOfKey(key); ok {
					return fmt.Sprintf(" {%d}", shard)
				}
			}
		}
	}
	return ""
}

// isLook reports whether a command only identifies the server. Guards send these commands continuously, and their
// faults would be like those of other calls.
func isLook(cmd redis.Cmder) bool {
	args := cmd.Args()
	return cmd.Name() == "get" && args[1] == serverKey ||
		cmd.Name() == "hgetall" && strings.HasSuffix(fmt.Sprint(args[1]), ":guard")
}

// ProcessPipelineHook makes a pipeline fail as a whole, or after its first half.
func (h faultyRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "hello" || name == "client" {
			return next(ctx, cmds)
		}
		all := func() error { return next(ctx, cmds) }
		what, _ := h.p.w.describe(cmds[0].Args())
		err := h.p.do("pipeline "+what+shardOf(cmds...), all, func() error {
			half := cmds[:len(cmds)/2]
			if cmds[0].Name() == "multi" {
				half = nil // Redis discards a transaction without its EXEC
			}
			for _, cmd := range half {
				_ = h.p.w.redis.Do(context.Background(), cmd.Args()...).Err()
			}
			return nil
		})
		if errors.Is(err, errGone) || errors.Is(err, errCut) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// wait replaces BLPOP, which would block the one server that all processes share: it polls, sleeps, and polls again.
func (h faultyRedis) wait(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	key := fmt.Sprint(args[1])
	seconds, err := strconv.ParseFloat(fmt.Sprint(args[2]), 64)
	if err != nil {
		return err
	}
	found := false
	look := func() error {
		_, err := h.p.w.mini.Lpop(key)
		found = found || err == nil
		return nil
	}
	for turn := range 2 {
		if err := h.p.do("wait", look, look); err != nil {
			cmd.SetErr(err)
			return err
		}
		if found {
			return nil
		}
		if turn == 0 {
			h.p.sleep(ctx, time.Duration(seconds*float64(time.Second)))
		}
	}
	cmd.SetErr(redis.Nil)
	return redis.Nil
}
