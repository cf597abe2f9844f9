package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// clusterQueryTimeout bounds a query for the map of slots. A node that has not answered by then is down or busy.
const clusterQueryTimeout = 500 * time.Millisecond

// cluster reads the map of slots of a Redis Cluster. It is safe for concurrent use.
//
// The cluster client of the library is not used, for two reasons. It reads the map again only once a minute or after a
// redirection, so the slots of a master that is cut off are unavailable for up to a minute. It also hides which server
// executes a command, and the guard must verify that server.
type cluster struct {
	configured []string      // addresses in the URL
	options    connector     // of the clients of a Server, without the address
	queries    connector     // of the clients for queries, without the address
	tls        *tls.Config   // nil: no TLS
	timeout    time.Duration // of a query to all nodes
	reads      singleflight.Group

	mu      sync.Mutex
	servers map[int]*Server   // by slot
	nodes   map[string]Client // by address
	known   []string          // addresses of all nodes in the last map
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

// parseCluster parses the URL of a cluster.
func parseCluster(raw string) (*cluster, error) {
	bad := errors.New("bad Redis URL: want redis+cluster://[user:password@]host:port,host:port")
	scheme, rest, _ := strings.Cut(raw, "+cluster://")
	authority, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(authority, "/")
	if path != "" && path != "0" {
		return nil, errors.New("bad Redis URL: a cluster has only database 0")
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	c := &cluster{
		configured: strings.Split(hosts, ","), timeout: clusterQueryTimeout, nodes: map[string]Client{},
		servers: map[int]*Server{},
	}
	if !areAddresses(c.configured) {
		return nil, bad
	}
	one := scheme + "://" + user + c.configured[0] + "/0"
	if query != "" {
		one += "?" + query
	}
	if _, err := url.Parse(one); err != nil { // its error contains the password
		return nil, bad
	}
	o, err := redis.ParseURL(one)
	if err != nil {
		return nil, bad
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each node has another one
	}
	c.options, c.tls = (*options)(o), o.TLSConfig
	queries := *o
	queries.DisableIdentity, queries.PoolSize = true, 2 // the identity would take another round trip within the timeout
	c.queries = (*options)(&queries)
	return c, nil
}

// server returns the only Server of a slot, so that all its clients share the known master.
func (c *cluster) server(slot int) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.servers[slot]; have != nil {
		return have
	}
	m := &master{finder: slotMaster{c, slot}, tls: c.tls, open: map[*trackedConn]struct{}{}}
	c.servers[slot] = &Server{options: c.options.at("slot "+strconv.Itoa(slot), m.dial), master: m, cluster: c}
	return c.servers[slot]
}

// read returns the nodes of the maps that readAll reads. It reuses maps that are newer than half a queryInterval.
// Concurrent calls share a query.
func (c *cluster) read() ([]Node, error) {
	c.mu.Lock()
	nodes, fresh := c.lastMap, time.Since(c.readAt) < queryInterval/2
	c.mu.Unlock()
	if fresh {
		return nodes, nil
	}
	all, err, _ := c.reads.Do("", func() (any, error) { return c.readAll() })
	return all.([]Node), err
}

// readAll queries all nodes for their maps concurrently. It returns when a majority has answered, or at the timeout
// with the answers so far.
func (c *cluster) readAll() ([]Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout) // shared by all waiting callers
	defer cancel()
	c.mu.Lock()
	addrs := distinct(c.configured, c.known)
	c.mu.Unlock()
	maps, err := queryMost(addrs, len(addrs)/2+1, func(addr string) ([]Node, error) {
		return Nodes(ctx, c.node(addr), addr)
	})
	if err != nil {
		return nil, fmt.Errorf("no node of the cluster answered: %w", err)
	}
	nodes := slices.Concat(maps...)
	known := make([]string, len(nodes))
	for i, n := range nodes {
		known[i] = n.Addr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastMap, c.known, c.readAt = nodes, distinct(known), time.Now()
	c.closeFormer()
	return nodes, nil
}

// closeFormer closes the clients of addresses that no node has any longer. c.mu must be held.
func (c *cluster) closeFormer() {
	for addr, client := range c.nodes {
		if !slices.Contains(c.known, addr) && !slices.Contains(c.configured, addr) {
			_ = client.Close()
			delete(c.nodes, addr)
		}
	}
}

// node returns the client for queries to one node.
func (c *cluster) node(addr string) Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[addr] == nil {
		c.nodes[addr] = c.queries.at(addr, nil).open(settings{timeouts: c.timeout, once: true}, 0)
	}
	return c.nodes[addr]
}
