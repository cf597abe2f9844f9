package redisconn

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Node is a node of a Redis Cluster, as one node describes it.
type Node struct {
	ID       string
	Addr     string
	Self     bool // the node that describes
	Master   bool
	MasterID string // of a replica: the id of its master
	// Migrating and Importing map each slot that moves to the id of the other node. They are empty unless Self is true.
	Migrating, Importing map[int]string

	epoch int64 // configuration epoch; the owner of a slot with the highest one wins
	slots [][2]int
}

// Owns reports whether the node is the master of a slot.
func (n *Node) Owns(slot int) bool {
	return n.Master && slices.ContainsFunc(n.slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// Nodes returns the nodes of a cluster as the node at addr, to which c is connected, describes them.
func Nodes(ctx context.Context, c redis.Cmdable, addr string) ([]Node, error) {
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	return parseNodes(text, addr), nil
}

// parseNodes parses the reply of CLUSTER NODES of the node at addr. It skips lines that it cannot read and nodes
// without an address.
func parseNodes(text, addr string) (nodes []Node) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		flags := strings.Split(f[2], ",")
		at, _, _ := strings.Cut(f[1], "@")
		colon := strings.LastIndexByte(at, ':') // an IPv6 address has no brackets
		if colon < 0 || slices.Contains(flags, "noaddr") {
			continue
		}
		host, port := at[:colon], at[colon+1:]
		if port == "0" {
			continue
		}
		if host == "" { // a node that has not met another one does not know its own address
			host, _, _ = net.SplitHostPort(addr)
		}
		n := Node{
			ID: f[0], Addr: net.JoinHostPort(host, port), Self: slices.Contains(flags, "myself"),
			Master: slices.Contains(flags, "master"), Migrating: map[int]string{}, Importing: map[int]string{},
		}
		if !n.Master {
			n.MasterID = f[3]
		}
		n.epoch, _ = strconv.ParseInt(f[6], 10, 64) // 0 if it is not a number
		for _, s := range f[8:] {
			n.addSlots(s)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// movingSlot matches a slot that moves: "[93->-id]" to another node, "[93-<-id]" from one.
var movingSlot = regexp.MustCompile(`^\[(\d+)-([<>])-(\w+)\]$`)

// addSlots adds a slot, a range of slots, or a slot that moves.
func (n *Node) addSlots(text string) {
	if m := movingSlot.FindStringSubmatch(text); m != nil {
		slot, _ := strconv.Atoi(m[1])
		if m[2] == ">" {
			n.Migrating[slot] = m[3]
		} else {
			n.Importing[slot] = m[3]
		}
		return
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.Atoi(first)
	to, wrong := strconv.Atoi(last)
	if err == nil && wrong == nil {
		n.slots = append(n.slots, [2]int{from, to})
	}
}

// Node returns a Server for one node of a Redis Cluster. It remains that of the node when slots move.
func (s *Server) Node(addr string) *Server {
	return &Server{options: s.options.at(addr, nil)}
}

// Credentials returns the user and the password of s.
func (s *Server) Credentials() (user, password string) {
	return s.options.credentials()
}

// Importing returns a client for the keys of a slot that a node imports: the node executes its commands although the
// slot still belongs to another node. The caller closes c.
//
// It sends ASKING before each command. A hook of c itself cannot do this, because ASKING must not precede AUTH.
func Importing(c Client) Client {
	send := func(ctx context.Context, cmds []redis.Cmder, _ redis.ProcessPipelineHook) error {
		pipe := c.Pipeline()
		for _, cmd := range cmds {
			pipe.Do(ctx, "ASKING")
			if err := pipe.Process(ctx, cmd); err != nil {
				return err
			}
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	return hooked(Addr(c), send)
}
