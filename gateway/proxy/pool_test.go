package proxy

import (
	"bufio"
	"context"
	"net"
	"testing"
)

func TestPruneClosesExpiredConnections(t *testing.T) {
	u := newTestUpstream(t)
	u.dial = func(context.Context, string) (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
	for range 2 {
		c, err := u.connect()
		if err != nil {
			t.Fatal(err)
		}
		u.release(c, true)
	}
	u.idle[0].since = -idleFor.Milliseconds() - 1
	expired := u.idle[0]
	u.prune()
	if len(u.idle) != 1 || u.idle[0] == expired {
		t.Errorf("%d idle connections, want the one that has not expired", len(u.idle))
	}
	if _, err := bufio.NewReader(expired).ReadByte(); err == nil {
		t.Error("the expired connection is open")
	}
}
