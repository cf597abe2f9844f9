package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// Redis loses all data repeatedly, also during a rebuild. Meanwhile the admin restocks, cancels rows and starts
// rebuilds at both backends, and processes are killed and paused. No sale is paused because of this. In the end every
// order of a 202 is its buyer's row, every restock is counted once, and every cancelled unit is sold or on sale again.
func TestFaultsWhileRedisIsEmptied(t *testing.T) {
	t.Parallel()
	const stock, add = 4000, 40
	s := startStack(t, shape{backends: 2, workers: 2, journal: true})
	s.createSale("s", stock)
	ctx := t.Context()
	buyers := &crowd{s: s, pause: 10 * time.Millisecond}
	buyers.start("s", 6)
	buyers.await(300)

	admin := &busyAdmin{s: s, saleID: "s"}
	admin.start(add)
	t.Cleanup(func() { // also when the test ends early
		buyers.stop.Store(true)
		admin.end()
		buyers.wg.Wait()
	})
	empty := func() { s.redis.Client().FlushAll(ctx) }
	rebuild := func() {
		for _, base := range s.admins {
			admin.wg.Go(func() {
				_, _ = try("POST", base+"/admin/v1/rebuild", adminToken, "{}", "Content-Type", "application/json")
			})
		}
	}
	//nolint:forbidigo // random delays vary the interleaving
	nap := func(most int) { time.Sleep(time.Duration(rand.IntN(most)) * time.Millisecond) }
	for round, strike := range []func(){
		empty,
		func() { rebuild(); nap(100); empty() },
		func() { rebuild(); nap(150); s.backends[0].crash() },
		func() { empty(); nap(200); s.backends[1].crash(); s.workers[0].crash() },
		func() {
			empty()
			nap(300)
			s.backends[0].Signal(syscall.SIGSTOP)
			nap(1500)
			empty()
			s.backends[0].Signal(syscall.SIGCONT)
		},
		func() {
			s.workers[1].Signal(syscall.SIGSTOP)
			empty()
			nap(1500)
			rebuild()
			s.workers[1].Signal(syscall.SIGCONT)
		},
		func() { s.redis.Pause(); rebuild(); nap(2000); s.redis.Resume() },
	} {
		strike()
		at := buyers.accepted.Load()
		buyers.await(at + 100)
		t.Logf("round %d: %d accepted, %d restocks, %d cancelled", round, buyers.accepted.Load(), admin.restocks.Load(),
			admin.cancelled.Load())
	}
	admin.end()
	buyers.stop.Store(true)
	buyers.wg.Wait()
	var r audit
	testenv.Eventually(t, 60*time.Second, "an idle shop", func() bool {
		var a answer
		r, a = s.tryAudit("s")
		return a.Status == 200 && r.Ready+r.Delayed+r.Leased+r.Returning == 0
	})
	if want := stock + add*admin.restocks.Load(); !r.Balanced || r.Stock != want {
		t.Errorf("audit %+v; want a stock of %d", r, want)
	}
	buyers.unanswered("s")
	buyers.compare("s", "created", "cancelled")
}

// busyAdmin restocks a sale and cancels its rows until end.
type busyAdmin struct {
	s      *stack
	saleID string

	stop                atomic.Bool
	wg                  sync.WaitGroup
	restocks, cancelled atomic.Int64
}

// start begins the restocks, of add units each, and the cancellations.
func (a *busyAdmin) start(add int) {
	a.wg.Go(func() {
		for n := 0; !a.stop.Load(); n++ {
			a.restock(add, fmt.Sprintf(`"r%d"`, n))
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the rate of an admin's commands
		}
	})
	a.wg.Go(func() {
		db, err := pgx.Connect(a.s.t.Context(), a.s.pg.URL)
		if err != nil {
			a.s.t.Error(err)
			return
		}
		defer db.Close(context.Background())
		for !a.stop.Load() {
			a.cancel(db)
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // as above
		}
	})
}

// end waits for the last commands.
func (a *busyAdmin) end() {
	a.stop.Store(true)
	a.wg.Wait()
}

// persist repeats a command until it is answered with anything but 503, for a minute at most.
func (a *busyAdmin) persist(path, body string, header ...string) answer {
	for i, began := 0, time.Now(); ; i++ {
		r, err := try("POST", a.s.admins[i%2]+path, adminToken, body, append(header, "Content-Type", "application/json")...)
		if err == nil && r.Status != 503 || time.Since(began) > time.Minute {
			return r
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // as above
	}
}

func (a *busyAdmin) restock(add int, key string) {
	if r := a.persist("/admin/v1/sales/"+a.saleID+"/restock", fmt.Sprintf(`{"add":%d}`, add), "Idempotency-Key",
		key); r.Status != 200 {
		a.s.t.Errorf("restock: %d %s", r.Status, r.Body)
	}
	a.restocks.Add(1)
}

// cancel cancels a row, if there is one.
func (a *busyAdmin) cancel(db *pgx.Conn) {
	var id string
	if db.QueryRow(context.Background(), "SELECT id::text FROM orders WHERE status = 'created' ORDER BY random() LIMIT 1").
		Scan(&id) != nil {
		return
	}
	if r := a.persist("/admin/v1/orders/"+id+"/cancel", ""); r.Status != 200 {
		a.s.t.Errorf("cancel: %d %s", r.Status, r.Body)
	}
	a.cancelled.Add(1)
}
