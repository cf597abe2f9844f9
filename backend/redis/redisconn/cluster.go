package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/singleflight"
)

// clusterQueryTimeout bounds a query for the map of slots. A node that has not answered by then is down or busy.
const clusterQueryTimeout = 500 * time.Millisecond

// cluster reads the map of slots of a Redis Cluster. It is safe for concurrent use.
//
// The cluster client of the library is not used: it reads the map again only once a minute or after a redirection, so a
// master that is cut off costs its slots up to a minute, and it hides which server executes a command, which the guard
// must know.
type cluster struct {
	configured []string      // addresses in the URL
	options    redis.Options // of a connection to a node
	timeout    time.Duration // of a query to all nodes
	reads      singleflight.Group

	mu      sync.Mutex
	servers map[int]*Server          // by slot
	nodes   map[string]*redis.Client // by address
	known   []string                 // addresses of all nodes in the last map
	lastMap []Node
	readAt  time.Time // time of the last map
}

const (
	clusterScheme    = "redis+cluster://"
	clusterTLSScheme = "rediss+cluster://"
)

// IsCluster reports whether a URL names a Redis Cluster.
func IsCluster(raw string) bool {
	return strings.HasPrefix(raw, clusterScheme) || strings.HasPrefix(raw, clusterTLSScheme)
}

// parseCluster parses the URL of a cluster into the cluster and the options of a connection to a node.
func parseCluster(raw string) (*cluster, *redis.Options, error) {
	bad := errors.New("bad Redis URL: want redis+cluster://[user:password@]host:port,host:port")
	scheme, rest, _ := strings.Cut(raw, "+cluster://")
	authority, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(authority, "/")
	if path != "" && path != "0" {
		return nil, nil, errors.New("bad Redis URL: a cluster has only database 0")
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	c := &cluster{timeout: clusterQueryTimeout, nodes: map[string]*redis.Client{}, servers: map[int]*Server{}}
	for addr := range strings.SplitSeq(hosts, ",") {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" {
			return nil, nil, bad
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, nil, bad
		}
		c.configured = append(c.configured, addr)
	}
	one := scheme + "://" + user + c.configured[0] + "/0"
	if query != "" {
		one += "?" + query
	}
	if _, err := url.Parse(one); err != nil { // its error contains the password
		return nil, nil, bad
	}
	o, err := redis.ParseURL(one)
	if err != nil {
		return nil, nil, bad
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // that of each node is its own
	}
	c.options = *o
	c.options.DisableIdentity, c.options.DialerRetries, c.options.ContextTimeoutEnabled = true, 1, true
	c.options.MaxRetries, c.options.PoolSize = -1, 2
	c.options.DialTimeout, c.options.ReadTimeout, c.options.WriteTimeout = c.timeout, c.timeout, c.timeout
	c.options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return c, o, nil
}

// server returns the only Server of a slot, so that all its clients share the known master.
func (c *cluster) server(o redis.Options, slot int) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.servers[slot]; have != nil {
		return have
	}
	m := &master{finder: slotMaster{c, slot}, tls: o.TLSConfig, open: map[*trackedConn]struct{}{}}
	o.Addr, o.Dialer = "slot "+strconv.Itoa(slot), m.dial
	c.servers[slot] = &Server{options: o, master: m, cluster: c}
	return c.servers[slot]
}

// slotMaster finds the master of one slot; see master.
type slotMaster struct {
	*cluster
	slot int
}

func (s slotMaster) limit() time.Duration { return s.timeout }

// query returns the master of the slot.
func (s slotMaster) query(ctx context.Context, _ []string) (answer, error) {
	nodes, err := s.read(ctx)
	if err != nil {
		return answer{}, err
	}
	var best answer
	for _, n := range nodes {
		if n.Owns(s.slot) && (best.master == "" || n.epoch > best.epoch) {
			best = answer{master: n.Addr, epoch: n.epoch}
		}
	}
	if best.master == "" {
		return answer{}, fmt.Errorf("slot %d of the cluster has no master", s.slot)
	}
	return best, nil
}

// read returns the nodes of all maps that most of the nodes return. Concurrent calls share a query.
func (c *cluster) read(ctx context.Context) ([]Node, error) {
	c.mu.Lock()
	nodes, fresh := c.lastMap, time.Since(c.readAt) < queryInterval/2
	c.mu.Unlock()
	if fresh {
		return nodes, nil
	}
	result := c.reads.DoChan("", func() (any, error) { return c.readAll() })
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("no node of the cluster answered: %w", ctx.Err())
	case r := <-result:
		nodes, _ := r.Val.([]Node)
		return nodes, r.Err
	}
}

// readAll queries all nodes concurrently. It returns when most have answered, or at the timeout with the answers so
// far.
func (c *cluster) readAll() ([]Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout) // shared by all waiting callers
	defer cancel()
	c.mu.Lock()
	addrs := slices.Concat(c.configured, c.known)
	c.mu.Unlock()
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	type reply struct {
		nodes []Node
		err   error
	}
	replies := make(chan reply, len(addrs))
	for _, addr := range addrs {
		go func() {
			nodes, err := Nodes(ctx, c.node(addr), addr)
			if err != nil {
				err = fmt.Errorf("%s: %w", addr, err)
			}
			replies <- reply{nodes, err}
		}()
	}
	var nodes []Node
	var known []string
	var failed []error
	answered := 0
	for range addrs {
		r := <-replies // each query ends with ctx
		if r.err != nil {
			failed = append(failed, r.err)
			continue
		}
		nodes = append(nodes, r.nodes...)
		for _, n := range r.nodes {
			known = append(known, n.Addr)
		}
		if answered++; answered > len(addrs)/2 {
			break
		}
	}
	if answered == 0 {
		return nil, fmt.Errorf("no node of the cluster answered: %w", errors.Join(failed...))
	}
	slices.Sort(known)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastMap, c.known, c.readAt = nodes, slices.Compact(known), time.Now()
	return nodes, nil
}

// forget makes the next read query the nodes.
func (s slotMaster) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = time.Time{}
}

// node returns the client for queries to one node.
func (c *cluster) node(addr string) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[addr] == nil {
		o := c.options
		o.Addr = addr
		c.nodes[addr] = redis.NewClient(&o)
	}
	return c.nodes[addr]
}

// parseSlots parses a slot or a range of slots. A slot that moves ("[93-<-...]") is not one of them.
func parseSlots(text string) (first, last int, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	first, err := strconv.Atoi(from)
	if err != nil {
		return 0, 0, false
	}
	if !isRange {
		return first, first, true
	}
	last, err = strconv.Atoi(to)
	return first, last, err == nil
}

// slotOf returns the cluster slot of a key: CRC-16/XMODEM of the text in its first braces, or of the whole key, modulo
// 16384 (the Redis Cluster specification).
func slotOf(key string) int {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	crc := uint16(0)
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % 16384
}

// redirected reports whether a node returned that another one has the slot, or that no node has it.
func redirected(err error) bool {
	if _, moved := redis.IsMovedError(err); moved {
		return true
	}
	return redis.IsClusterDownError(err)
}

// followMoves is a hook that looks for the master again when a command is redirected.
type followMoves struct{ master *master }

func (followMoves) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h followMoves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.see(err)
		return err
	}
}

func (h followMoves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if redirected(cmd.Err()) {
				h.see(cmd.Err())
				break
			}
		}
		return err
	}
}

func (h followMoves) see(err error) {
	if err != nil && redirected(err) {
		go h.master.lookAgain()
	}
}
