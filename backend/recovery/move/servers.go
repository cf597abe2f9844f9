package move

import (
	"context"
	"errors"
	"fmt"
	"net"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// server is one of the two masters.
type server struct {
	id        string // of the node
	addr      string
	runID     string
	owns      bool             // the server reports that it owns the slot
	leaves    bool             // the server reports that MIGRATING is still set for the slot
	pinned    redisconn.Client // connects to this run of the server only
	importing redisconn.Client // of the target only: for keys of the slot while the source owns it
}

func (j *job) close() {
	for _, c := range []redisconn.Client{j.source.pinned, j.target.pinned, j.target.importing} {
		if c != nil {
			_ = c.Close()
		}
	}
}

// connect finds and connects both masters.
func (j *job) connect(ctx context.Context, to string) error {
	if !j.cfg.Server.IsCluster() {
		return errors.New("this Redis is not a cluster, so a shard cannot move: set --redis redis+cluster://host:port")
	}
	of := j.cfg.Server.For(j.shard.Guard())
	j.slot, _ = of.Slot()
	from, err := of.Master(ctx)
	if err != nil {
		return sale.Unavailable(err)
	}
	source, nodes, err := j.open(ctx, &j.source, from)
	if err != nil {
		return err
	}
	j.result.From = from
	if !j.source.owns {
		return fmt.Errorf("the nodes of the cluster do not agree on the master of slot %d: try again in some seconds", j.slot)
	}
	target := find(nodes, func(n *redisconn.Node) bool { return n.Addr == to })
	switch {
	case target == nil:
		return fmt.Errorf("%s is not a node of the cluster: use an address of CLUSTER NODES, or "+
			"add it with redis-cli --cluster add-node", to)
	case target.ID == source.ID:
		j.target.id = source.ID
		return nil
	case !target.Master:
		return fmt.Errorf("%s is a replica: name its master, %s", to, master(nodes, target).Addr)
	}
	if id := source.Migrating[j.slot]; id != "" {
		switch other := find(nodes, func(n *redisconn.Node) bool { return n.ID == id }); {
		case other == nil:
			host, port, _ := net.SplitHostPort(from)
			return fmt.Errorf("an interrupted move was to node %s, which the cluster does not know any longer: "+
				"redis-cli -h %s -p %s cluster setslot %d stable; a rebuild follows", id, host, port, j.slot)
		case master(nodes, other).ID != target.ID:
			other = master(nodes, other)
			return fmt.Errorf("an interrupted move to %s must be finished first: sluice shard move %d --to %s",
				other.Addr, j.shard, other.Addr)
		}
		j.interrupted = id
	}
	self, _, err := j.open(ctx, &j.target, to)
	if err != nil {
		return err
	}
	if self.ID != target.ID || j.target.owns && j.interrupted == "" {
		return fmt.Errorf("the nodes of the cluster do not agree on %s: try again in some seconds", to)
	}
	j.target.importing = redisconn.Importing(j.target.pinned)
	return nil
}

// master returns the master of a replica, or the node itself. After a failover, the target of an interrupted move can
// be a replica of the node that has replaced it. Its claim to the slot has ended then.
func master(nodes []redisconn.Node, of *redisconn.Node) *redisconn.Node {
	if m := find(nodes, func(n *redisconn.Node) bool { return n.ID == of.MasterID }); m != nil {
		return m
	}
	return of
}

func find(nodes []redisconn.Node, is func(*redisconn.Node) bool) *redisconn.Node {
	for i := range nodes {
		if is(&nodes[i]) {
			return &nodes[i]
		}
	}
	return nil
}

// open connects to a node and returns its own description and that of the others.
func (j *job) open(ctx context.Context, to *server, addr string) (*redisconn.Node, []redisconn.Node, error) {
	var err error
	to.addr = addr
	if to.pinned, to.runID, err = guard.PinServer(ctx, j.cfg.Server.Node(addr), redisconn.Once); err != nil {
		return nil, nil, err
	}
	self, nodes, err := to.describe(ctx)
	if err != nil {
		return nil, nil, err
	}
	to.id, to.owns, to.leaves = self.ID, self.Owns(j.slot), self.Migrating[j.slot] != ""
	return self, nodes, nil
}

// describe returns the server's description of itself and of all nodes.
func (s *server) describe(ctx context.Context) (self *redisconn.Node, nodes []redisconn.Node, err error) {
	if nodes, err = redisconn.Nodes(ctx, s.pinned, s.addr); err != nil {
		return nil, nil, sale.Unavailable(err)
	}
	if self = find(nodes, func(n *redisconn.Node) bool { return n.Self }); self == nil {
		return nil, nil, fmt.Errorf("%s does not describe itself in CLUSTER NODES", s.addr)
	}
	return self, nodes, nil
}
