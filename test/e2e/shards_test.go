package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

// inShards returns ids of sales, one in each of n shards.
func inShards(n int) []string {
	space, names := keyspace.Space{Shards: n}, make([]string, n)
	for i, left := 0, n; left > 0; i++ {
		id := fmt.Sprintf("sale-%d", i)
		if shard := space.ShardOf(id); names[shard] == "" {
			names[shard], left = id, left-1
		}
	}
	return names
}

// Sales in several shards: a full shard without a worker does not stop purchases in the others; when the workers are
// back, all orders become rows, those of a killed worker too; Redis may lose everything; and a process with another
// number of shards does not start.
func TestSalesInSeveralShards(t *testing.T) {
	t.Parallel()
	const shards, bound = 3, 5
	s := startStack(t, shape{backends: 2, journal: true, env: []string{"SLUICE_SHARDS=3", "SLUICE_MAX_READY=5"}})
	sales := inShards(shards)
	for _, id := range sales {
		s.createSale(id, 100)
	}
	for i := range bound {
		if a := s.buy(sales[0], fmt.Sprint("a", i)); a.Status != 202 {
			t.Fatalf("purchase %d: %d %s", i, a.Status, a.Body)
		}
	}
	if a := s.buy(sales[0], "late"); a.Status != 503 || a.Code != "temporarily-unavailable" ||
		a.Header.Get("Retry-After") == "" {
		t.Errorf("a full shard: %d %s, Retry-After %q", a.Status, a.Body, a.Header.Get("Retry-After"))
	}
	if a := s.buy(sales[0], "a0"); a.Status != 409 {
		t.Errorf("the holder of an order gets already-bought from a full shard: %d %s", a.Status, a.Body)
	}
	for _, id := range sales[1:] {
		if a := s.buy(id, "late"); a.Status != 202 {
			t.Errorf("a shard with room: %d %s", a.Status, a.Body)
		}
	}
	var q struct {
		Ready    int64
		MaxReady int64 `json:"max_ready"`
		Shards   []struct{ Shard, Ready int64 }
	}
	if a := s.adminAPI(
		"GET",
		"/admin/v1/queue",
		"",
	); json.Unmarshal(a.Body, &q) != nil || len(q.Shards) != shards || q.Ready != bound+2 || q.Shards[0].Ready != bound ||
		q.MaxReady != bound {
		t.Errorf("the queue: %s", a.Body)
	}
	env := []string{"SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_SERVER=" + s.admin}
	if out, errOut, code := sluiceRun(t, env, "queue"); code != 0 || strings.Count(out, "\n") != shards+3 ||
		!strings.Contains(out, "with 5 ready orders") {
		t.Errorf("sluice queue: exit %d\n%s%s", code, out, errOut)
	}

	for _, args := range [][]string{{"backend", "--listen", addr(t), "--admin", addr(t)}, {"worker"}, {"watcher"}} {
		_, errOut, code := sluiceRun(t, s.env, append(args, "--shards", "2")...)
		last := errOut[strings.LastIndex(strings.TrimSpace(errOut), "\n")+1:]
		if code != 2 || !strings.Contains(last, "shards") || strings.HasPrefix(last, "{") {
			t.Errorf("sluice %s with other shards: exit %d, %q", args[0], code, last)
		}
	}

	worker := launch(t, s.env, "worker")
	for i, id := range sales {
		n := int64(1)
		if i == 0 {
			n = bound
		}
		s.settle(id, n)
	}
	worker.End(syscall.SIGKILL)
	if a := s.buy(sales[0], "late"); a.Status != 202 {
		t.Errorf("the shard has drained: %d %s", a.Status, a.Body)
	}
	s.redis.Client().FlushAll(t.Context())
	testenv.Eventually(t, time.Minute, "Redis is rebuilt", func() bool {
		return s.adminAPI("GET", "/readyz", "").Status == 200 &&
			s.redis.Client().HExists(t.Context(), "sluice:{2}:guard", "run_id").Val()
	})
	worker.Start()
	for i, id := range sales {
		want := int64(1)
		if i == 0 {
			want = bound + 1
		}
		if r := s.settle(id, want); !r.Balanced || r.Left != 100-want {
			t.Errorf("sale %s: %+v", id, r)
		}
	}
}
