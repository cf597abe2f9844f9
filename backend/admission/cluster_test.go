package admission

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// clusters holds the *cluster of each client of clusterClient.
var clusters sync.Map

// cluster has the servers to which a client of a Redis Cluster sends commands.
type cluster struct {
	t       *testing.T
	redis   *redisconn.Server
	masters []redisconn.Client

	mu      sync.Mutex
	clients map[keyspace.Shard]redisconn.Client
	hooks   []redis.Hook // of the clients
}

// clusterClient returns a client of a Redis Cluster, which sends each command to the master of its shard. The tests of
// the package share the cluster.
func clusterClient(t *testing.T) redisconn.Client {
	t.Helper()
	nodes := testenv.SharedRedisMasters(t)
	server, err := redisconn.NewServer(nodes.URL)
	if err != nil {
		t.Fatal(err)
	}
	all := &cluster{t: t, redis: server, clients: map[keyspace.Shard]redisconn.Client{}}
	for _, n := range nodes.Nodes {
		master := testenv.NewClient(n.Addr)
		t.Cleanup(func() { _ = master.Close() })
		all.masters = append(all.masters, master)
	}
	c := redisconn.Route(func(key string) redisconn.Client {
		shard, _ := keyspace.ShardOfKey(key)
		return all.client(shard)
	})
	clusters.Store(c, all)
	return c
}

// client returns the client of the master of a shard.
func (c *cluster) client(shard keyspace.Shard) redisconn.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.clients[shard]; one != nil {
		return one
	}
	one := c.redis.For(shard.Guard()).Open()
	c.t.Cleanup(func() { _ = one.Close() })
	for _, h := range c.hooks {
		one.AddHook(h)
	}
	c.clients[shard] = one
	return one
}

// addHook is AddHook of a client of onEachRedis.
func addHook(c redisconn.Client, h redis.Hook) {
	all, ok := clusterOf(c)
	if !ok {
		c.AddHook(h)
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.hooks = append(all.hooks, h)
	for _, one := range all.clients {
		one.AddHook(h)
	}
}

// clone returns another client of the Redis of a client of onEachRedis.
func clone(t *testing.T, c redisconn.Client) redisconn.Client {
	t.Helper()
	if _, ok := clusterOf(c); ok {
		return clusterClient(t)
	}
	other := testenv.NewClient(redisconn.Addr(c))
	t.Cleanup(func() { _ = other.Close() })
	return other
}

func clusterOf(c redisconn.Client) (*cluster, bool) {
	all, ok := clusters.Load(c)
	if !ok {
		return nil, false
	}
	return all.(*cluster), true
}

// mastersOf returns the clients of all servers behind a client of onEachRedis.
func mastersOf(c redisconn.Client) []redisconn.Client {
	if all, ok := clusterOf(c); ok {
		return all.masters
	}
	return []redisconn.Client{c}
}

// newStock is NewStock over a client of onEachRedis.
func newStock(cfg StockConfig, c redisconn.Client) *Stock {
	if all, ok := clusterOf(c); ok {
		cfg.Server = all.client
	}
	return NewStock(cfg)
}

// flushAll deletes all keys.
func flushAll(ctx context.Context, c redisconn.Client) error {
	for _, master := range mastersOf(c) {
		if err := master.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// keysLike returns the keys that match a pattern.
func keysLike(ctx context.Context, c redisconn.Client, pattern string) (keys []string) {
	for _, master := range mastersOf(c) {
		keys = append(keys, master.Keys(ctx, pattern).Val()...)
	}
	return keys
}
