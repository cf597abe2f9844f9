package redisscript_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// Each script runs in the states of random sales in a real Redis: in half of the runs first with full memory, and then
// twice, as when a reply is lost. A run that fails, and each second run, changes nothing, and the sales balance.
func TestScriptsRunTwiceInRandomStates(t *testing.T) {
	for name, stream := range map[string]bool{"list": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			m := newMarket(t, rand.New(rand.NewPCG(seed, 1)), stream)
			for step := 0; step < 200 && !t.Failed(); step++ {
				m.step()
				if step%10 == 0 {
					m.audit()
				}
			}
			m.audit()
			m.twice.stop()
			if len(m.twice.ran) < 10 || m.twice.full == 0 {
				t.Errorf("%d scripts ran, %d runs failed with full memory: %v", len(m.twice.ran), m.twice.full, m.twice.ran)
			}
		})
	}
}

// twice is a hook that runs each script twice.
type twice struct {
	t      *testing.T
	direct redisconn.Client // without the hook
	names  map[string]string

	mu     sync.Mutex
	random *rand.Rand
	ran    map[string]int
	full   int // runs that failed with full memory
	ended  bool
}

// stop ends the comparisons: units that are moved in the background may find Redis stopped.
func (h *twice) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// different returns something else, or adds something, in each run.
var different = []string{"alloc_order_ids", "register_consumer", "enqueue"}

// equal returns the same in each run. The others report that there is nothing left to do.
var equal = []string{"admit", "return_unit", "segment_set_apart", "load_buyers", "dead_begin_cancel", "extend_lease"}

func (h *twice) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if slices.Contains([]string{"hello", "client"}, cmd.Name()) { // of a new connection, which another command waits for
		return next(ctx, cmd)
	}
	h.mu.Lock() // units can be moved between segments in the background
	defer h.mu.Unlock()
	if h.ended || cmd.Name() != "evalsha" {
		return next(ctx, cmd)
	}
	ctx = context.WithoutCancel(ctx) // a call that its caller abandons could be executed during a comparison
	name := h.names[cmd.Args()[1].(string)]
	h.ran[name]++
	limited := h.random.IntN(2) == 0 && name != "snapshot" // its copies are not compared
	if limited {
		before := h.dump()
		h.direct.ConfigSet(ctx, "maxmemory", "1")
		err := next(ctx, cmd)
		h.direct.ConfigSet(ctx, "maxmemory", "0")
		if limited = !redis.IsOOMError(err); !limited {
			h.full++
			h.want(before, name+" failed with full memory")
			cmd.SetErr(nil)
		}
	}
	if !limited {
		_ = next(ctx, cmd)
	}
	if slices.Contains(different, name) {
		return cmd.Err()
	}
	between, again := h.dump(), redis.NewCmd(ctx, cmd.Args()...)
	_ = h.direct.Process(ctx, again) // its error is part of the result
	h.want(between, name+" ran twice")
	result := func(c *redis.Cmd) string { return fmt.Sprint(c.Val(), c.Err()) }
	if one, two := result(cmd.(*redis.Cmd)), result(again); slices.Contains(equal, name) && one != two {
		h.t.Errorf("%s returned %s and then %s", name, one, two)
	}
	return cmd.Err()
}

// want fails the test if Redis does not hold this.
func (h *twice) want(before map[string]string, what string) {
	after := h.dump()
	for key := range after {
		if _, existed := before[key]; !existed {
			h.t.Errorf("%s: %s is new", what, key)
		}
	}
	for key, text := range before {
		if after[key] != text {
			h.t.Errorf("%s: %s was\n%s\nand is\n%s", what, key, text, after[key])
		}
	}
}

// dump returns what Redis holds, by key, without copies of the queue, times and lifetimes.
func (h *twice) dump() map[string]string {
	ctx, all := context.Background(), map[string]string{}
	for _, key := range h.direct.Keys(ctx, "*").Val() {
		kind := h.direct.Type(ctx, key).Val()
		switch {
		case strings.Contains(key, ":copy:"):
		case kind == "zset", kind == "set":
			members := h.direct.ZRange(ctx, key, 0, -1).Val()
			if kind == "set" {
				members = h.direct.SMembers(ctx, key).Val()
			}
			slices.Sort(members)
			all[key] = strings.Join(members, "\n")
		case kind == "hash":
			all[key] = fmt.Sprint(h.direct.HGetAll(ctx, key).Val()) // sorted
		case kind == "stream":
			all[key] = fmt.Sprint(h.direct.XRange(ctx, key, "-", "+").Val(),
				h.direct.XInfoGroups(ctx, key).Val(), h.consumers(key))
		case kind == "list":
			all[key] = strings.Join(h.direct.LRange(ctx, key, 0, -1).Val(), "\n")
		case kind == "string":
			all[key] = h.direct.Get(ctx, key).Val()
		}
	}
	return all
}

// consumers returns the numbers of pending entries by consumer of a stream.
func (h *twice) consumers(stream string) map[string]int64 {
	pending := map[string]int64{}
	for _, c := range h.direct.XInfoConsumers(context.Background(), stream, keyspace.OrdersGroup).Val() {
		pending[c.Name] = c.Pending
	}
	return pending
}

// market is a deployment with three shards. The steps of the test are those of its processes.
type market struct {
	*testing.T
	ctx      context.Context
	random   *rand.Rand
	twice    *twice
	db       *store.Store
	stock    *admission.Stock
	admitter *admission.Admitter
	mover    *spread.Mover
	checker  *audit.Checker
	space    keyspace.Space
	workers  []*marketWorker
	sales    []sale.Sale
	returns  []sale.Order // cancelled
}

// marketWorker is a consumer of the queue of a shard.
type marketWorker struct {
	*queue.List
	shard    keyspace.Shard
	consumer queue.Consumer
	last     int
	ack      string
	batches  []queue.Batch
}

func newMarket(t *testing.T, random *rand.Rand, stream bool) *market {
	server := testenv.StartRedis(t)
	direct, hooked := testenv.OpenPatient(t, server.URL), testenv.OpenPatient(t, server.URL)
	h := &twice{
		t: t, random: rand.New(rand.NewPCG(random.Uint64(), 2)), direct: direct, names: map[string]string{},
		ran: map[string]int{},
	}
	hooked.AddHook(testenv.Commands(h.process))
	t.Cleanup(h.stop) // before the clients are closed
	m := &market{
		T: t, ctx: t.Context(), random: random, twice: h, db: storetest.Open(t, storetest.SQLite(t)),
		space: keyspace.Space{Shards: 3},
	}
	for _, name := range redisscript.Names() {
		script := redisscript.Load(name)
		m.check(script.Load(m.ctx, direct).Err())
		h.names[script.Hash()] = name
	}
	m.mover = spread.NewMover(admission.NewSegments(hooked, m.space, nil), m.db)
	m.stock = admission.NewStock(admission.StockConfig{Client: hooked, Space: m.space, Claimer: m.db, Mover: m.mover})
	m.checker = audit.New(m.stock, m.db)
	var err error
	m.admitter, err = admission.NewAdmitter(admission.Config{
		Client: hooked, Space: m.space, IDs: admission.NewSequencer(hooked, m.space, time.Now), Stream: stream, MaxReady: 6,
		Refillers: spread.NewRefillers(m.mover), Timeout: time.Minute,
	})
	m.check(err)
	for _, shard := range m.space.All() {
		l := queue.NewList(hooked, shard, queue.Config{
			Stream: stream, MaxAttempts: 2, MaxCrashes: 1, CallTimeout: time.Minute,
			Lease: time.Hour, BackoffBase: time.Hour, BackoffCap: time.Hour, Jitter: func() float64 { return 1 },
		})
		for _, name := range []string{"one", "two"} {
			consumer, err := l.Register(m.ctx, name)
			m.check(err)
			m.workers = append(m.workers, &marketWorker{List: l, shard: shard, consumer: consumer})
		}
	}
	for i, segments := range []int{0, 2, 3} {
		def := storetest.Sale(fmt.Sprint("sale", i), 5)
		def.PerBuyer, def.Spread = 1+i, segments
		def, err := m.db.CreateSale(m.ctx, def)
		m.check(err)
		m.check(m.stock.Load(m.ctx, def, m.db.OrdersOf))
		m.sales = append(m.sales, def)
	}
	return m
}

func (m *market) check(err error) {
	m.Helper()
	if err != nil {
		m.Error(err)
	}
}

// directly changes Redis between two runs of scripts.
func (m *market) directly(do func(c redisconn.Client)) {
	m.twice.mu.Lock()
	defer m.twice.mu.Unlock()
	do(m.twice.direct)
}

func (m *market) audit() {
	for _, s := range m.sales {
		if r, err := m.checker.Audit(m.ctx, s.ID); err != nil || !r.Balanced {
			m.Errorf("%+v, %v", r, err)
		}
	}
}

// step is one step of a process of the deployment.
func (m *market) step() {
	s, w := m.sales[m.random.IntN(len(m.sales))], m.workers[m.random.IntN(len(m.workers))]
	switch m.random.IntN(12) {
	case 0, 1, 2:
		m.buy(s)
	case 3, 4, 5:
		m.take(w)
	case 6, 7:
		m.end(w)
	case 8:
		m.pass(w)
	case 9:
		m.settleDead(w)
	case 10:
		m.cancel(s)
	case 11:
		m.change(s, w)
	}
}

func (m *market) buy(s sale.Sale) {
	buyers := []string{"ann", " bob, jr ", "c;1:2", "1 2 3", "é:"}
	r := admission.Request{
		SaleID: s.ID, Spread: s.Spread, Buyer: buyers[m.random.IntN(len(buyers))], Key: fmt.Sprint(m.random.IntN(12)),
	}
	if m.random.IntN(2) == 0 {
		r.KeyTTL, r.Fingerprint = time.Hour, "of-"+s.ID
	}
	_, _ = m.admitter.Admit(m.ctx, r) // units of another segment may be too late
}

func (m *market) take(w *marketWorker) {
	w.last++
	b, _, err := w.TakeAs(m.ctx, w.consumer.BatchID(w.last), 1+m.random.IntN(4), w.ack)
	m.check(err)
	w.ack = ""
	if len(b.Messages) > 0 {
		w.batches = append(w.batches, b)
	}
}

// end ends a batch in one of several ways, or leaves its lease to expire.
func (m *market) end(w *marketWorker) {
	if len(w.batches) == 0 {
		return
	}
	b := w.batches[0]
	w.batches = w.batches[1:]
	var err error
	switch how := m.random.IntN(8); how {
	case 0:
		_, err = w.Release(m.ctx, b.ID)
	case 1:
		_, err = w.Extend(m.ctx, b.ID)
		w.batches = append(w.batches, b)
	case 2, 3, 4:
		m.check(m.db.Write(m.ctx, b.Messages[1:]))
		_, err = w.Ack(m.ctx, b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no", Permanent: how == 2})
	case 5, 6:
		m.check(m.db.Write(m.ctx, b.Messages))
		if w.ack == "" && how == 5 {
			w.ack = b.ID
			break
		}
		_, err = w.Ack(m.ctx, b.ID)
	}
	m.check(err)
}

// pass lets two hours pass for the leases and delays of a shard, or sets the clock back.
func (m *market) pass(w *marketWorker) {
	hours := []float64{-2, -2, 2}[m.random.IntN(3)]
	m.directly(func(c redisconn.Client) {
		for _, key := range []string{w.shard.Leases(), w.shard.Delayed()} {
			for _, member := range c.ZRange(m.ctx, key, 0, -1).Val() {
				c.ZIncrBy(m.ctx, key, hours*3_600_000, member)
			}
		}
	})
	_, err := w.Reclaim(m.ctx, 10)
	m.check(err)
}

func (m *market) settleDead(w *marketWorker) {
	page, _, err := w.DeadLetters(m.ctx, queue.DeadQuery{})
	m.check(err)
	if len(page) == 0 {
		return
	}
	letter := page[m.random.IntN(len(page))]
	id := letter.Message.ID
	switch {
	case letter.Raw != nil:
		m.check(w.DropRaw(m.ctx, letter.Key))
	case m.random.IntN(2) == 0:
		_ = w.RetryDead(m.ctx, id) // it may be cancelled meanwhile
	default:
		_, err := w.BeginCancel(m.ctx, id)
		m.check(err)
		wasRow, err := m.db.CancelDead(m.ctx, store.DeadOrder{Order: letter.Message})
		m.check(err)
		m.check(w.FinishCancel(m.ctx, id, !wasRow))
	}
}

// cancel cancels an order that is a row, and returns the units of some that were cancelled.
func (m *market) cancel(s sale.Sale) {
	rows, err := m.db.OrderRows(m.ctx, store.OrderQuery{SaleID: s.ID, Limit: 100})
	m.check(err)
	if len(rows) > 0 {
		o, changed, err := m.db.CancelOrder(m.ctx, rows[m.random.IntN(len(rows))].ID)
		m.check(err)
		if changed {
			m.returns = append(m.returns, o)
		}
	}
	m.returns = slices.DeleteFunc(m.returns, func(o sale.Order) bool {
		if o.SaleID != s.ID || m.random.IntN(2) == 0 {
			return false
		}
		home, one := spread.HomePart(s.ID, o.Buyer, s.Spread), []sale.Order{o}
		numbers, err := m.stock.ReturnUnits(m.ctx, home, one)
		m.check(err)
		if m.random.IntN(3) == 0 {
			return false // the process crashes
		}
		m.check(m.db.MarkReturned(m.ctx, []store.Return{{ID: o.ID, Number: numbers[0]}}))
		m.check(m.stock.ConfirmReturns(m.ctx, home, one))
		return true
	})
}

// change is a step of an admin or of another program.
func (m *market) change(s sale.Sale, w *marketWorker) {
	switch m.random.IntN(5) {
	case 0:
		def, err := m.db.Restock(m.ctx, s.ID, int64(1+m.random.IntN(2)), "")
		m.check(err)
		m.check(m.stock.Update(m.ctx, def))
	case 1:
		for _, to := range []sale.Switch{sale.Paused, sale.On} {
			def, err := m.db.SetSwitch(m.ctx, s.ID, to)
			m.check(err)
			m.check(m.stock.Update(m.ctx, def))
			m.buy(s)
		}
	case 2:
		if s.Spread > 1 {
			from := m.random.IntN(s.Spread)
			move := spread.Move{From: from, To: (from + 1) % s.Spread, Units: 1}
			_, _ = m.mover.Move(m.ctx, spread.Sale{ID: s.ID, Spread: s.Spread}, move) // may be too late
		}
	case 3:
		m.directly(func(c redisconn.Client) { m.check(c.RPush(m.ctx, w.shard.Ready(), "\xff").Err()) })
	case 4:
		entry := &redis.XAddArgs{Stream: w.shard.Orders(), Values: []string{"x", "1"}}
		m.directly(func(c redisconn.Client) { m.check(c.XAdd(m.ctx, entry).Err()) })
	}
}
