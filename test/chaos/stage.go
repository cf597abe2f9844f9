package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/internal/token"
	"sluice/test/testenv"
)

const (
	tokenSecret = "chaos-token-secret-0123456789abcdefghijklmnop"
	adminToken  = "chaos-admin-token-0123456789abcdefghijklmnop"
)

// actor is a process that faults can hit. A fault holds its lock until it is undone.
type actor struct {
	sync.Mutex
	*testenv.Program
	base, admin string // of a backend
}

// stage holds the stores and processes of a run.
type stage struct {
	redis *redisServers
	pg    *testenv.Postgres
	disk  *disk
	key   *token.Key

	workers, backends, watchers []*actor
	links                       []*link
	linkLocks                   []sync.Mutex
	pgLock                      sync.Mutex
	journals                    []string // directories
}

// newStage starts the stores, a link from each process to each store that it uses, and the processes.
func newStage(t testenv.TB, binary, queue string, cast Cast, lease time.Duration) *stage {
	t.Helper()
	s := &stage{
		redis: startRedis(t, cast.Masters, cast.Shards),
		pg:    testenv.StartPostgres(t), // fsync is on by default
	}
	s.disk = newDisk(t, s.pg)
	var err error
	if s.key, err = token.NewKey(tokenSecret); err != nil {
		t.Fatalf("chaos: %v", err)
	}
	config, err := pgx.ParseConfig(s.disk.url)
	if err != nil {
		t.Fatalf("chaos: %v", err)
	}
	postgres := fmt.Sprintf("%s:%d", config.Host, config.Port)
	launch := func(name string, sql bool, args ...string) *actor {
		toRedis := s.redis.link(t, name)
		s.links = append(s.links, toRedis)
		env := []string{
			"SLUICE_TOKEN_SECRET=" + tokenSecret, "SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_USER_RATE=1000-S",
			fmt.Sprint("SLUICE_SHARDS=", cast.Shards), "SLUICE_QUEUE=" + queue,
			"SLUICE_REDIS_URL=" + s.redis.url(toRedis),
		}
		if sql {
			toSQL := newLink(t, name+" - PostgreSQL", postgres)
			s.links = append(s.links, toSQL)
			env = append(env, "SLUICE_DATABASE_URL="+strings.Replace(s.disk.url, postgres, toSQL.addrs()[0], 1))
		}
		return &actor{Program: testenv.Launch(t, binary, env, args...)}
	}
	for i := range cast.Backends {
		listen, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
		journal := t.TempDir()
		s.journals = append(s.journals, journal)
		b := launch(fmt.Sprint("backend ", i), true, "backend", "--listen", listen, "--admin", admin, "--journal", journal)
		b.base, b.admin = "http://"+listen, "http://"+admin
		s.backends = append(s.backends, b)
	}
	for _, b := range s.backends { // the first one creates the tables
		testenv.Eventually(t, 60*time.Second, "a backend that is ready", func() bool { return ready(b.base) })
	}
	for i := range cast.Workers {
		w := launch(fmt.Sprint("worker ", i), true, "worker", "--no-watcher", "--lease", lease.String())
		s.workers = append(s.workers, w)
	}
	for i := range cast.Watchers {
		s.watchers = append(s.watchers, launch(fmt.Sprint("watcher ", i), false, "watcher"))
	}
	s.linkLocks = make([]sync.Mutex, len(s.links))
	return s
}

// drain stops the backends, which first end their decisions about buyers that have disconnected, and starts them again.
// It returns the backends that ended with an error.
func (s *stage) drain(t testenv.TB) (wrong []string) {
	t.Helper()
	for i, b := range s.backends {
		if code := b.End(syscall.SIGTERM); code != 0 {
			wrong = append(wrong, fmt.Sprintf("backend %d ended with code %d on SIGTERM", i, code))
		}
		b.Start()
	}
	for _, b := range s.backends {
		testenv.Eventually(t, 60*time.Second, "a backend that is ready again", func() bool { return ready(b.base) })
	}
	return wrong
}

func ready(base string) bool {
	return call(context.Background(), "GET", base+"/readyz", "", "", "").status == 200
}

// linksOf returns the number of links of a cast.
func linksOf(c Cast) int { return 2*c.Backends + 2*c.Workers + c.Watchers }
