package redisconn

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A server that does not respond delays a pipeline once, and not once for each such server.
func TestPipelineIsSentToAllServersConcurrently(t *testing.T) {
	var all sync.WaitGroup
	all.Add(2)
	meet := func(_ context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
		all.Done()
		all.Wait() // until both servers have received a pipeline
		for _, cmd := range cmds {
			cmd.(*redis.IntCmd).SetVal(1)
		}
		return nil
	}
	servers := map[string]Client{"sluice:{0}:a": hooked("0", meet), "sluice:{1}:a": hooked("1", meet)}
	client := Route(func(key string) Client { return servers[key] })
	var counts []*redis.IntCmd
	var lost *redis.IntCmd
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, key := range []string{"sluice:{0}:a", "sluice:{1}:a", "sluice:{0}:a"} {
			counts = append(counts, p.Exists(t.Context(), key))
		}
		lost = p.Exists(t.Context(), "sluice:{2}:a")
		return nil
	})
	if !errors.Is(err, errNoKey) || !errors.Is(lost.Err(), errNoKey) {
		t.Errorf("a command without a server: %v, %v", err, lost.Err())
	}
	for i, count := range counts {
		if n, err := count.Result(); n != 1 || err != nil {
			t.Errorf("command %d: %d, %v", i, n, err)
		}
	}
}
