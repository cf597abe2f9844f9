package redisconn

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
)

// newNode returns the cluster of a server with these replies, and the address of the server.
func newNode(t *testing.T, replies map[string]func(*server.Peer)) (*cluster, string) {
	t.Helper()
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for name, reply := range replies {
		if err := s.Register(name, func(p *server.Peer, _ string, _ []string) { reply(p) }); err != nil {
			t.Fatal(err)
		}
	}
	addr := s.Addr().String()
	c, err := parseCluster(clusterScheme + addr)
	if err != nil {
		t.Fatal(err)
	}
	return c, addr
}

// Nodes get new addresses, for example when Kubernetes restarts them. The clients of the old ones must not be kept.
func TestClientsOfFormerAddressesAreClosed(t *testing.T) {
	var self string
	var other atomic.Value // address of the second node
	c, self := newNode(t, map[string]func(*server.Peer){"CLUSTER": func(p *server.Peer) {
		p.WriteBulk(fmt.Sprintf("a %s@1 myself,master - 0 0 1 connected 0-5\nb %s@1 master - 0 0 2 connected 6-9\n",
			self, other.Load()))
	}})
	for port := range 3 {
		address := fmt.Sprint("127.0.0.1:", port+1) // no server listens there
		other.Store(address)
		for range 2 { // the second map is read from both nodes
			if _, err := c.readAll(); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{self, address}
		slices.Sort(want)
		c.mu.Lock()
		if got := slices.Sorted(maps.Keys(c.nodes)); !slices.Equal(got, want) {
			t.Errorf("clients of %v are open, want those of %v", got, want)
		}
		c.mu.Unlock()
	}
}

// The first query to a node sends the fewest commands, because all of them share one timeout.
func TestQueriesSendNoIdentity(t *testing.T) {
	var identities atomic.Int64
	c, _ := newNode(t, map[string]func(*server.Peer){
		"CLIENT":  func(p *server.Peer) { identities.Add(1); p.WriteOK() },
		"CLUSTER": func(p *server.Peer) { p.WriteBulk("a :1@1 myself,master - 0 0 1 connected 0-9\n") },
	})
	if _, err := c.readAll(); err != nil {
		t.Fatal(err)
	}
	if n := identities.Load(); n > 0 {
		t.Errorf("a query sent its identity by %d commands", n)
	}
}
