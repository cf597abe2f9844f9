package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// startServer starts a Redis on a host.
func (f *farm) startServer(name string, args ...string) {
	h := f.host(name)
	h.launch(silent{f.t}, nil, append([]string{
		"redis-server", "--bind", h.ip, "--port", fmt.Sprint(redisPort), "--protected-mode", "no", "--dir", h.dir,
		"--save", "", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0",
	}, args...)...)
}

// startSentinels starts a Redis with two replicas and a Sentinel beside each, as docs/deploy.md has it.
func (f *farm) startSentinels() {
	t := f.t
	first := f.host(redisHosts[0])
	for i, name := range redisHosts {
		h := f.host(name)
		args := []string{
			"--appendonly",
			"yes",
			"--appendfsync",
			"always",
			"--min-replicas-to-write",
			"1",
			"--min-replicas-max-lag",
			"1",
		}
		if i > 0 {
			args = append(args, "--replicaof", fmt.Sprint(first.ip, " ", redisPort))
		}
		f.startServer(name, args...)
		config := filepath.Join(h.dir, "sentinel.conf")
		text := fmt.Sprintf(
			"bind %s\nport %d\nprotected-mode no\nsentinel monitor shop %s %d 2\nsentinel down-after-milliseconds shop "+
				"2000\nsentinel failover-timeout shop 10000\n",
			h.ip,
			sentinelPort,
			first.ip,
			redisPort,
		)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.sentinels = append(f.sentinels, h.launch(silent{t}, nil, "redis-server", config, "--sentinel"))
	}
	testenv.Eventually(t, 60*time.Second, "two replicas, and three Sentinels that know them", func() bool {
		master := f.redis(redisHosts[0])
		defer master.Close()
		if strings.Count(master.Info(t.Context(), "replication").Val(), "state=online") != 2 {
			return false
		}
		for i := range redisHosts {
			s := testenv.NewClient(f.sentinel(i))
			state := s.Info(t.Context(), "sentinel").Val()
			s.Close()
			if !strings.Contains(state, "slaves=2,sentinels=3") {
				return false
			}
		}
		return true
	})
}

// redis returns a client in the network of the buyers.
func (f *farm) redis(name string) redisconn.Client {
	return redis.NewClient(
		&redis.Options{Addr: f.host(name).at(redisPort), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second},
	)
}

// master returns the host that the reachable Sentinels name as the master.
func (f *farm) master() string {
	votes := map[string]int{}
	for i := range redisHosts {
		s := redis.NewClient(
			&redis.Options{Addr: f.sentinel(i), MaxRetries: -1, DialTimeout: 200 * time.Millisecond, ReadTimeout: time.Second},
		)
		addr, err := s.Do(f.t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shop").StringSlice()
		s.Close()
		if err == nil {
			votes[addr[0]]++
		}
	}
	for _, name := range redisHosts {
		if votes[f.host(name).ip] >= 2 {
			return name
		}
	}
	return ""
}

func (f *farm) sentinel(i int) string { return f.host(redisHosts[i]).at(sentinelPort) }
