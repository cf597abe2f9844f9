package guard

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
)

// Shards holds the guard of every shard. It is safe for concurrent use.
type Shards struct {
	cfg         Config
	guards      []*Guard
	client, raw redisconn.Client

	mu     sync.Mutex
	common map[*redisconn.Server]clients // for the keys of keyspace.Space, which belong to no shard
}

// clients are those of one server.
type clients struct{ guarded, raw redisconn.Client }

// Open returns the guards of all shards of a Redis or a Redis Cluster. It does not connect.
func Open(cfg Config) *Shards {
	s := &Shards{cfg: cfg, common: map[*redisconn.Server]clients{}}
	for _, shard := range cfg.Space.All() {
		s.guards = append(s.guards, newGuard(cfg, shard))
	}
	if len(s.guards) == 1 && !cfg.Server.IsCluster() {
		s.client, s.raw = s.guards[0].Client(), s.guards[0].Raw()
		return s
	}
	s.client = redisconn.Route(func(key string) redisconn.Client { return s.find(key).guarded })
	s.raw = redisconn.Route(func(key string) redisconn.Client { return s.find(key).raw })
	return s
}

// Deployment returns the id of the deployment of this process, 0 if it has none or is not known yet.
func (s *Shards) Deployment() (id int64) {
	for _, g := range s.guards {
		id = cmp.Or(id, g.Deployment())
	}
	return id
}

// find returns the clients for a key; none if its shard does not exist.
func (s *Shards) find(key string) clients {
	if shard, ok := keyspace.ShardOfKey(key); ok {
		if int(shard) >= len(s.guards) {
			return clients{}
		}
		return clients{s.guards[shard].Client(), s.guards[shard].Raw()}
	}
	server := s.cfg.Server.For(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	common, ok := s.common[server]
	if !ok {
		common = clients{guarded: server.Open(s.cfg.Options...), raw: server.Open(s.cfg.Options...)}
		common.guarded.AddHook(gate(func() bool { return !s.owned() }))
		s.common[server] = common
	}
	return common
}

// owned reports whether the last checks found at least one shard of this deployment, and none of another one. It
// decides whether commands for keys outside the shards are allowed. These keys, such as those of events, do not depend
// on the stock, so a rebuild does not block them.
func (s *Shards) owned() bool {
	found := false
	for _, g := range s.guards {
		if g.foreign.Load() {
			return false
		}
		found = found || g.owned.Load()
	}
	return found
}

// Server returns the Redis or the Redis Cluster of all shards.
func (s *Shards) Server() *redisconn.Server { return s.cfg.Server }

// Of returns the guard of a shard.
func (s *Shards) Of(shard keyspace.Shard) *Guard { return s.guards[shard] }

// Client returns a client for the keys of all shards. Commands to a shard fail with ErrUnverified while its data is not
// verified. Commands for other keys fail with ErrUnverified until a check has found a shard of this deployment, and
// while any shard belongs to another deployment. With more than one shard or a cluster, the client is that of
// redisconn.Route.
func (s *Shards) Client() redisconn.Client { return s.client }

// Raw returns a client for the keys of all shards that is not guarded; see Guard.Raw.
func (s *Shards) Raw() redisconn.Client { return s.raw }

// Pin opens a client of the current server of a shard; see Guard.Pin.
func (s *Shards) Pin(ctx context.Context, shard keyspace.Shard) (client redisconn.Client, runID string, err error) {
	return s.Of(shard).Pin(ctx)
}

// Verified reports whether the data of every shard is verified, by the last checks; if not, it returns a reason.
func (s *Shards) Verified() (reason string, ok bool) {
	for _, g := range s.guards {
		if reason, ok = g.Verified(); !ok {
			return reason, false
		}
	}
	return "", true
}

// Check checks all shards concurrently; see Guard.Check.
func (s *Shards) Check(ctx context.Context, sql Generations) error {
	return errors.Join(loop.Each(s.guards, -1, func(_ int, g *Guard) error { return g.Check(ctx, sql) })...)
}

// Status is the state of one shard.
type Status struct {
	Shard      keyspace.Shard
	Slot       int    // of a Redis Cluster; -1 without one
	Master     string // address; "" if it is not known
	Verified   bool   // the data of the shard is verified
	Reason     string // why it is not; see Guard.Verified
	Generation int64  // of the verified data
	Sales      int64  // sales, and segments of sales, that the shard holds; -1 if unknown
}

// Status checks all shards concurrently and returns their state by number.
func (s *Shards) Status(ctx context.Context, sql Generations) []Status {
	all := make([]Status, len(s.guards))
	_ = loop.Each(s.guards, -1, func(i int, g *Guard) error { all[i] = g.status(ctx, sql); return nil })
	return all
}

func (g *Guard) status(ctx context.Context, sql Generations) Status {
	now := Status{Shard: g.shard, Slot: -1, Sales: -1}
	if slot, ok := g.server.Slot(); ok {
		now.Slot = slot
	}
	finding, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	now.Master, _ = g.server.Master(finding) // the check returns the error
	if err := g.Check(ctx, sql); err != nil {
		now.Reason = err.Error()
		return now
	}
	if now.Reason, now.Verified = g.Verified(); now.Verified {
		now.Generation = g.Generation()
	}
	if n, err := g.raw.SCard(ctx, g.shard.Sales()).Result(); err == nil {
		now.Sales = n
	}
	return now
}

// Run runs the guards of all shards until ctx ends; see Guard.Run. It returns nil.
func (s *Shards) Run(ctx context.Context, sql Generations, rebuild func(context.Context, keyspace.Shard) error) error {
	return errors.Join(loop.Each(s.guards, -1, func(_ int, g *Guard) error {
		if rebuild == nil {
			return g.Run(ctx, sql, nil)
		}
		return g.Run(ctx, sql, func(ctx context.Context) error { return rebuild(ctx, g.shard) })
	})...)
}

// Close closes all clients.
func (s *Shards) Close() error {
	var errs []error
	for _, g := range s.guards {
		errs = append(errs, g.Close())
	}
	if len(s.guards) > 1 || s.cfg.Server.IsCluster() {
		errs = append(errs, s.client.Close(), s.raw.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.common {
		errs = append(errs, c.guarded.Close(), c.raw.Close())
	}
	return errors.Join(errs...)
}
