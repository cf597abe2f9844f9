package e2e

import (
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

	var stop atomic.Bool
	var wg sync.WaitGroup
	var restocks, cancelled atomic.Int64
	t.Cleanup(func() { // also when the test ends early
		stop.Store(true)
		buyers.stop.Store(true)
		wg.Wait()
		buyers.wg.Wait()
	})
	// persist repeats a command until it is answered with anything but 503, for a minute at most.
	persist := func(path, body string, header ...string) answer {
		for i, began := 0, time.Now(); ; i++ {
			a, err := try("POST", s.admins[i%2]+path, adminToken, body, append(header, "Content-Type", "application/json")...)
			if err == nil && a.Status != 503 || time.Since(began) > time.Minute {
				return a
			}
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // polling interval of an admin
		}
	}
	wg.Go(func() {
		for n := 0; !stop.Load(); n++ {
			if a := persist("/admin/v1/sales/s/restock", fmt.Sprintf(`{"add":%d}`, add), "Idempotency-Key",
				fmt.Sprintf(`"r%d"`, n)); a.Status != 200 {
				t.Errorf("restock: %d %s", a.Status, a.Body)
			}
			restocks.Add(1)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // as above
		}
	})
	wg.Go(func() {
		db, err := pgx.Connect(ctx, s.pg.URL)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close(ctx)
		for !stop.Load() {
			var id string
			if db.QueryRow(ctx, "SELECT id::text FROM orders WHERE status = 'created' ORDER BY random() LIMIT 1").
				Scan(&id) ==
				nil {
				if a := persist("/admin/v1/orders/"+id+"/cancel", ""); a.Status != 200 {
					t.Errorf("cancel: %d %s", a.Status, a.Body)
				}
				cancelled.Add(1)
			}
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // as above
		}
	})
	empty := func() { s.redis.Client().FlushAll(ctx) }
	rebuild := func() {
		for _, admin := range s.admins {
			wg.Go(func() {
				_, _ = try("POST", admin+"/admin/v1/rebuild", adminToken, "{}", "Content-Type", "application/json")
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
		t.Logf("round %d: %d accepted, %d restocks, %d cancelled", round, buyers.accepted.Load(), restocks.Load(),
			cancelled.Load())
	}
	stop.Store(true)
	wg.Wait()
	buyers.stop.Store(true)
	buyers.wg.Wait()
	var r audit
	testenv.Eventually(t, 60*time.Second, "an idle shop", func() bool {
		var a answer
		r, a = s.tryAudit("s")
		return a.Status == 200 && r.Ready+r.Delayed+r.Leased+r.Returning == 0
	})
	if want := stock + add*restocks.Load(); !r.Balanced || r.Stock != want {
		t.Errorf("audit %+v; want a stock of %d", r, want)
	}
	buyers.unanswered("s")
	buyers.compare("s", "created", "cancelled")
}
