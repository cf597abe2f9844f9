package chaos

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the schedule; 0: a new one")
	faults = flag.Int("faults", 20, "how many")
	idle   = flag.Duration("idle", time.Minute,
		"most time from the end of the last fault until both stores are idle; generous, for busy machines")
	stock = flag.String("redis", "single", "store of the stock: single, one Redis; or cluster, a Redis Cluster")
	queue = flag.String("queue", "list", "where orders wait in Redis: list or stream")
	svg   = flag.String("svg", "", "file to draw the run to")
	span  = flag.Duration("span", 20*time.Second, "time over which the faults are spread")
)

var binary string // sluice

func TestMain(m *testing.M) {
	flag.Parse()
	redisconn.Quiet(slog.New(slog.DiscardHandler)) // it is away now and then
	os.Exit(testenv.MainWithSluice(m, &binary))
}

// Every accepted order is sold once, under all faults.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(rand.Uint32())
	}
	t.Logf("seed %d", *seed)
	plan := Plan{
		Binary: binary, Queue: *queue, Seed: *seed, Faults: *faults, Span: *span, Lease: 2 * time.Second,
		Cast: Cast{Backends: 2, Workers: 3, Watchers: 2, Shards: 2},
		Rate: 250, Sales: max(2, int(*span/(50*time.Second))), Stock: 20_000, Idle: *idle,
	}
	switch *stock {
	case "single":
	case "cluster":
		plan.Cast.Masters, plan.Cast.Shards, plan.Spread = 3, 8, 4
	default:
		t.Fatalf("-redis %q: want single or cluster", *stock)
	}
	r := Run(t, plan, t.Logf)
	t.Logf("\n%s", r)
	if *svg != "" {
		if err := r.Draw(*svg); err != nil {
			t.Error(err)
		}
	}
	if n := len(r.Violations()); n > 0 {
		for _, f := range r.Struck {
			t.Logf("from %.3f s: %s", f.Began.Seconds(), f.Fault)
		}
		t.Errorf("%d violations", n)
	}
	canFail(t, r)
	if got := r.History.orders(); got < 20 {
		t.Errorf("only %d orders were accepted: too few for a proof", got)
	}
	if len(r.Struck) < *faults {
		t.Errorf("only %d of %d faults happened", len(r.Struck), *faults)
	}
}

// canFail damages the books of a real run and verifies that Check reports it.
func canFail(t *testing.T, r *Result) {
	t.Helper()
	confirmed := slices.IndexFunc(r.Books.Rows,
		func(row Row) bool { _, ok := r.History.Confirmed[row.ID]; return ok && !row.Cancelled })
	if confirmed < 0 {
		t.Fatal("no row of an order that was confirmed to a buyer")
	}
	rows := r.Books.Rows
	r.Books.Rows = slices.Delete(slices.Clone(rows), confirmed, confirmed+1)
	if v := Check(r.History, r.Books); len(v.Lost) != len(r.Verdict.Lost)+1 {
		t.Errorf("a row is removed, and %d orders are lost", len(v.Lost))
	}
	twin := rows[confirmed]
	twin.ID = "1"
	r.Books.Rows = append(slices.Clone(rows), twin)
	if v := Check(r.History, r.Books); len(v.Twice) < len(r.Verdict.Twice)+1 &&
		r.History.Sales[twin.Place.Sale].PerBuyer == 1 {
		t.Error("an order was duplicated in the books, and Check reported no buyer with two")
	}
	r.Books.Rows = rows
}
