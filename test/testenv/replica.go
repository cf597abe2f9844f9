package testenv

import (
	"context"
	"net"
	"strings"
	"time"
)

// StartReplica starts a Redis that follows the one at an address, and waits until it has what that one holds.
func StartReplica(t TB, of string, args ...string) *Redis {
	t.Helper()
	host, port, _ := net.SplitHostPort(of)
	r := StartRedis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	c := r.Client()
	Eventually(t, 30*time.Second, "a replica that follows "+of, func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	return r
}
