package redisconn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// A connection breaks somewhere in the replies to concurrent calls. Each call returns its own reply, or that Redis is
// not available.
func TestPipelineOverABrokenConnection(t *testing.T) {
	mini := miniredis.RunT(t)
	for cut := int64(0); cut < 700 && !t.Failed(); cut += 7 { // bytes of the first connection, which has some hundreds
		var broken atomic.Bool
		proxy := testenv.ProxyTCP(t, mini.Addr(), func(client, server net.Conn) {
			if broken.Swap(true) { // a later connection
				_, _ = io.Copy(client, server)
				return
			}
			_, _ = io.CopyN(client, server, cut)
		})
		client := connect(t, "redis://"+proxy)
		pipe, err := redisconn.NewPipeline(client)
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for i := range 12 {
			running.Go(func() {
				want := "reply " + strconv.Itoa(i)
				got, err := pipe.Eval(t.Context(), "return ARGV[1]", []string{"k"}, want).Text()
				if got != want && (err == nil || !redisconn.Unavailable(err)) {
					t.Errorf("cut after %d bytes: %q, %v, want %q", cut, got, err, want)
				}
			})
		}
		running.Wait()
	}
}

// A command without an error and with a zero value would be read as the answer of an empty Redis.
func TestCommandsOfAPipelineHaveTheErrorOfTheirConnection(t *testing.T) {
	mini, _ := openMini(t)
	mini.RequireAuth("secret")
	check := redisconn.OnConnect(func(ctx context.Context, cn redisconn.Connection) error {
		return cn.Get(ctx, "guard").Err()
	})
	for url, options := range map[string][]redisconn.Option{
		"redis://:wrong@" + mini.Addr(): nil,
		"redis://" + mini.Addr():        {check},
	} {
		client, err := redisconn.Open(url, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		read := func(p redis.Pipeliner) error {
			p.LLen(t.Context(), "ready")
			p.ZCard(t.Context(), "dead")
			return nil
		}
		for name, pipelined := range map[string]func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error){
			"a pipeline": client.Pipelined, "a transaction": client.TxPipelined,
		} {
			cmds, failed := pipelined(t.Context(), read)
			for _, cmd := range cmds {
				if err := cmd.Err(); failed == nil || !errors.Is(err, failed) {
					t.Errorf("%s, %s: %s has the error %v, want %v", url, name, cmd.Name(), err, failed)
				}
			}
		}
	}
}

// Each script runs in the pipeline of its first key.
func TestScriptsRunInThePipelineOfTheirKey(t *testing.T) {
	servers, pipes := map[string]*miniredis.Miniredis{}, map[string]*redisconn.Pipeline{}
	for _, key := range []string{"a", "b"} {
		mini, client := openMini(t)
		pipe, err := redisconn.NewPipeline(client)
		if err != nil {
			t.Fatal(err)
		}
		servers[key], pipes[key] = mini, pipe
	}
	all := redisconn.NewPipelines(pipes["a"], func(key string) *redisconn.Pipeline { return pipes[key] })
	for key := range servers {
		set := all.Eval(t.Context(), "return redis.call('SET', KEYS[1], ARGV[1])", []string{key, "other"}, key)
		if err := set.Err(); err != nil {
			t.Error(err)
		}
	}
	for key, server := range servers {
		if got := server.Keys(); !slices.Equal(got, []string{key}) {
			t.Errorf("the server of key %s has the keys %q", key, got)
		}
	}
}
