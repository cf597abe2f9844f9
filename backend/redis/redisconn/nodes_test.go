package redisconn

import (
	"maps"
	"testing"
)

// Redis does not put an IPv6 address in brackets.
func TestNodesOfAnyAddress(t *testing.T) {
	const lines = `07c3 192.0.2.1:7000@17000 myself,master - 0 0 3 connected 0-5460 5462 [5461->-292f] [93-<-e7d1]
292f 2001:db8::1:7001@17001,two.example master - 0 1426238316232 2 connected 5461
e7d1 :7002@17002 slave 292f 0 1426238316232 2 connected
6ec2 :0@0 master,noaddr - 0 0 1 disconnected
f00d 192.0.2.9:0@0 master - 0 0 1 connected
short line
`
	nodes := parseNodes(lines, "[2001:db8::7]:7009")
	type fact struct{ id, addr, master string }
	want := []fact{
		{"07c3", "192.0.2.1:7000", ""}, {"292f", "[2001:db8::1]:7001", ""}, {"e7d1", "[2001:db8::7]:7002", "292f"},
	}
	if len(nodes) != len(want) {
		t.Fatalf("%d nodes: %+v", len(nodes), nodes)
	}
	for i, n := range nodes {
		if got := (fact{n.ID, n.Addr, n.MasterID}); got != want[i] || n.Self != (i == 0) {
			t.Errorf("node %d is %+v, want %+v", i, n, want[i])
		}
	}
	first := nodes[0]
	if !first.Owns(5460) || first.Owns(5461) || !first.Owns(5462) || nodes[2].Owns(5461) || first.epoch != 3 {
		t.Errorf("the slots are %+v", nodes)
	}
	if !maps.Equal(first.Migrating, map[int]string{5461: "292f"}) ||
		!maps.Equal(first.Importing, map[int]string{93: "e7d1"}) {
		t.Errorf("slots that move: %v and %v", first.Migrating, first.Importing)
	}
}
