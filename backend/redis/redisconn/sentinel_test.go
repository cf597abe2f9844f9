package redisconn_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// A client of a Sentinel connects to the master, and to the new master after a failover. OnConnect checks every
// connection.
func TestClientFollowsTheMasterOfASentinel(t *testing.T) {
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	ctx := t.Context()
	master := testenv.StartRedis(t)
	replica := testenv.StartReplica(t, master.Addr)
	sentinel := testenv.StartSentinel(t, master.Addr, 1)

	roles := make(chan string, 100)
	check := redisconn.OnConnect(func(ctx context.Context, cn redisconn.Connection) error {
		role, err := cn.Do(ctx, "ROLE").Slice()
		if err == nil {
			roles <- role[0].(string)
		}
		return err
	})
	client := connect(t, sentinel.URL+"?master_name="+testenv.SentinelMaster, check)
	testenv.Eventually(t, time.Minute, "a write to the master", func() bool {
		return client.Set(ctx, "k", "v", 0).Err() == nil
	})
	if role := <-roles; role != "master" {
		t.Errorf("connected to a server with the role %q", role)
	}
	testenv.Eventually(t, time.Minute, "the replica has the key", func() bool {
		return replica.Client().Get(ctx, "k").Val() == "v"
	})
	master.Kill()
	testenv.Failover(t, sentinel, master.Addr)
	testenv.Eventually(t, 60*time.Second, "a write after the failover", func() bool {
		return client.Set(ctx, "after", "1", 0).Err() == nil
	})
	if got := replica.Client().Get(ctx, "after").Val(); got != "1" {
		t.Errorf("the new master has %q, want 1", got)
	}
}

func TestURLsThatReadFromReplicasAreRejected(t *testing.T) {
	for query, want := range map[string]string{
		"master_name=":                         "want redis://sentinel",
		"master_name=shop&replica_only=true":   "replica_only reads from replicas",
		"master_name=shop&route_randomly=true": "route_randomly reads from replicas",
		"master_name=shop&no_such=1":           "want redis://sentinel",
		"master_name=shop&addr=other:port":     "want redis://sentinel",
		"master_name=shop&addr=other:65536":    "want redis://sentinel",
	} {
		_, err := redisconn.Open("redis://:hunter2@127.0.0.1:1/0?" + query)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", query, err)
		}
	}
}
