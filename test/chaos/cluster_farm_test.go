package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// clusterHosts are three masters and three replicas.
var clusterHosts = []string{"redis-1", "redis-2", "redis-3", "redis-4", "redis-5", "redis-6"}

const (
	clusterMasters = 3
	// nodeTimeout is the cluster-node-timeout in milliseconds, as docs/deploy.md has it.
	nodeTimeout = 2000
)

// newClusterFarm starts a farm over a Redis Cluster. Journals protect what a replica has not received, because a master
// that was promoted has no replica.
func newClusterFarm(t *testing.T) *farm {
	t.Helper()
	return startFarm(t, 16, clusterHosts, func(f *farm) []string {
		return []string{"SLUICE_REDIS_URL=" + f.startCluster()}
	})
}

// startCluster starts the nodes, creates a cluster of them with redis-cli, and returns its URL.
func (f *farm) startCluster() (url string) {
	var nodes []string
	for _, name := range clusterHosts {
		f.startServer(name, "--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes",
			"--cluster-node-timeout", fmt.Sprint(nodeTimeout), "--cluster-require-full-coverage", "no")
		nodes = append(nodes, f.host(name).at(redisPort))
	}
	for _, name := range clusterHosts {
		c := f.redis(name)
		testenv.Eventually(f.t, time.Minute, name+" answers", func() bool { return c.Ping(f.t.Context()).Err() == nil })
		c.Close()
	}
	command(f.t, append(append([]string{"redis-cli", "--cluster", "create"}, nodes...),
		"--cluster-replicas", "1", "--cluster-yes")...)
	testenv.Eventually(f.t, time.Minute, "three masters with a replica each", func() bool {
		return len(f.masters()) == clusterMasters && f.replicated()
	})
	return "redis+cluster://" + strings.Join(nodes[:clusterMasters], ",")
}

// masters returns the hosts that are masters with slots, and that answer.
func (f *farm) masters() (names []string) {
	for _, name := range clusterHosts {
		c := f.redis(name)
		text, err := c.ClusterNodes(f.t.Context()).Result()
		c.Close()
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); err == nil && len(fields) > 8 && fields[2] == "myself,master" {
				names = append(names, name)
			}
		}
	}
	return names
}

// replicated reports whether each master has a replica that follows.
func (f *farm) replicated() bool {
	for _, name := range f.masters() {
		c := f.redis(name)
		info := c.Info(f.t.Context(), "replication").Val()
		c.Close()
		if !strings.Contains(info, "state=online") {
			return false
		}
	}
	return true
}

// owner returns the host that serves a shard, or "". It does not look at a host that is cut off.
func (f *farm) owner(shard keyspace.Shard, cutOff ...string) string {
	for _, name := range clusterHosts {
		if slices.Contains(cutOff, name) {
			continue
		}
		c := f.redis(name)
		err := c.Exists(f.t.Context(), shard.Guard()).Err() // another node redirects it
		c.Close()
		if err == nil {
			return name
		}
	}
	return ""
}

// clusterClient returns a client for the keys of all shards.
func (f *farm) clusterClient() redisconn.Client {
	var nodes []string
	for _, name := range clusterHosts {
		nodes = append(nodes, f.host(name).at(redisPort))
	}
	server, err := redisconn.NewServer("redis+cluster://" + strings.Join(nodes, ","))
	if err != nil {
		f.t.Fatal(err)
	}
	clients := make([]redisconn.Client, f.shards)
	for i := range clients {
		clients[i] = server.For(keyspace.Shard(i).Guard()).Open()
		f.t.Cleanup(func() { _ = clients[i].Close() })
	}
	return redisconn.Route(func(key string) redisconn.Client {
		shard, _ := keyspace.ShardOfKey(key)
		return clients[shard]
	})
}
