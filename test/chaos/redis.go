package chaos

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// redisServers is the Redis of a stage: one server, or a Redis Cluster in which each master has a replica.
type redisServers struct {
	t       testenv.TB
	single  *testenv.Redis        // nil: a cluster
	cluster *testenv.RedisCluster // nil: one server
	shards  int
	locks   []sync.Mutex // of a master and its replica
	// lost counts the promotions of replicas that may lack data. Such a promotion loses request keys, which are in no
	// other store.
	lost atomic.Int64
}

// startRedis starts a cluster of so many masters, or one server if there are none.
func startRedis(t testenv.TB, masters, shards int) *redisServers {
	t.Helper()
	args := []string{"--appendonly", "yes", "--appendfsync", "always"}
	r := &redisServers{t: t, shards: shards, locks: make([]sync.Mutex, max(masters, 1))}
	if masters == 0 {
		r.single = testenv.StartRedis(t, args...)
		return r
	}
	// A master votes for a replica of the same master once in two of these times, which bounds handovers.
	r.cluster = testenv.StartRedisCluster(t, masters, append(args, "--cluster-node-timeout", "5000")...)
	return r
}

// link opens the link of a process to Redis.
func (r *redisServers) link(t testenv.TB, name string) *link {
	t.Helper()
	if r.cluster == nil {
		return newLink(t, name+" - Redis", r.single.Addr)
	}
	var nodes []string
	for _, n := range r.cluster.Nodes {
		nodes = append(nodes, n.Addr)
	}
	return newClusterLink(t, name+" - Redis", nodes...)
}

// url returns the URL of Redis by a link.
func (r *redisServers) url(l *link) string {
	if r.cluster == nil {
		return "redis://" + l.addrs()[0] + "/0"
	}
	url := "redis+cluster://" + l.addrs()[0]
	for _, addr := range l.addrs()[1:len(r.locks)] {
		url += "," + addr
	}
	return url
}

// client returns a client without links, for the keys of all shards, and the clients of each shard. They are closed
// when the test ends.
func (r *redisServers) client() (all redisconn.Client, byShard []redisconn.Client) {
	byShard = make([]redisconn.Client, r.shards)
	if r.cluster == nil {
		all = directTo(r.t, r.single.Addr)
		for i := range byShard {
			byShard[i] = all
		}
		return all, byShard
	}
	server, err := redisconn.NewServer(r.cluster.URL)
	if err != nil {
		r.t.Fatalf("chaos: %v", err)
	}
	for i := range byShard {
		byShard[i] = server.For(keyspace.Shard(i).Guard()).Open()
		r.t.Cleanup(func() { _ = byShard[i].Close() })
	}
	return redisconn.Route(func(key string) redisconn.Client {
		shard, _ := keyspace.ShardOfKey(key)
		return byShard[shard]
	}), byShard
}

// masters returns a client of each server that has keys of its own.
func (r *redisServers) masters() (all []redisconn.Client) {
	if r.cluster == nil {
		return []redisconn.Client{directTo(r.t, r.single.Addr)}
	}
	for pair := range r.locks {
		all = append(all, directTo(r.t, r.master(pair).Addr))
	}
	return all
}

func directTo(t testenv.TB, addr string) redisconn.Client {
	c := redis.NewClient(
		&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 2 * time.Second},
	)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// master returns the master of a pair. Its lock must be held while there are faults.
func (r *redisServers) master(pair int) *testenv.Redis {
	node := r.cluster.Nodes[pair]
	if !r.cluster.IsMaster(node) {
		node = r.cluster.Partner(node)
	}
	return node
}

// strike injects one fault of Redis and undoes it; struck is called when it begins.
func (r *redisServers) strike(f Fault, struck func()) {
	lasts := func() { struck(); time.Sleep(f.For) }
	if f.Kind == SlotMoved || f.Kind == MoveEndedHalfway {
		r.moveSlot(f, lasts)
		return
	}
	r.locks[f.Target].Lock()
	defer r.locks[f.Target].Unlock()
	master := r.single
	if r.cluster != nil {
		master = r.master(f.Target)
	}
	switch f.Kind {
	case RedisKilled:
		master.Kill()
		lasts()
		master.Start()
	case RedisFrozen:
		master.Pause()
		lasts()
		master.Resume()
	case MasterReplaced:
		r.replace(master, testenv.Complete, nil, lasts)
	case OldPromoted:
		r.replace(master, testenv.Old, lasts, func() {})
	case EmptyPromoted:
		r.replace(master, testenv.Empty, nil, lasts)
	case MasterHandedOver:
		struck()
		r.cluster.HandOver(master)
	}
}

// replace kills a master, waits, promotes its replica, and starts the lost master again as a replica.
func (r *redisServers) replace(master *testenv.Redis, data testenv.ReplicaData, between, wait func()) {
	r.cluster.Lose(master, data, between)
	wait()
	r.lost.Add(1)
	r.cluster.Promote(r.cluster.Partner(master))
	r.cluster.Rejoin(master)
}

// moveSlot moves the slot of a shard to another master; wait is called when a part of it has moved. The fault
// MoveEndedHalfway loses the source then, and ends the move.
func (r *redisServers) moveSlot(f Fault, wait func()) {
	key := keyspace.Shard(f.Target).Guard()
	from, to, unlock := r.lockMove(key, f.Node)
	defer unlock()
	source, target := r.master(from), r.master(to)
	if f.Kind == SlotMoved {
		r.cluster.MoveSlot(key, source, target, wait)
		return
	}
	r.cluster.BeginMove(key, source, target)
	r.replace(source, testenv.Complete, nil, wait)
	r.cluster.AbandonMove(key, r.master(from), target)
}

// lockMove locks the pair that has the slot of a key, and the pair that is so many after it.
func (r *redisServers) lockMove(key string, after int) (from, to int, unlock func()) {
	for {
		from = r.pairOf(key)
		to = (from + after) % len(r.locks)
		first, second := &r.locks[min(from, to)], &r.locks[max(from, to)]
		first.Lock()
		second.Lock()
		unlock = func() { second.Unlock(); first.Unlock() }
		if r.pairOf(key) == from {
			return from, to, unlock
		}
		unlock()
	}
}

// pairOf returns the pair with the slot of a key.
func (r *redisServers) pairOf(key string) int {
	owner := r.cluster.Owner(key)
	for i, n := range r.cluster.Nodes {
		if n == owner {
			return i % len(r.locks)
		}
	}
	return 0
}
