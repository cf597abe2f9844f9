package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

// The queue is long after an outage of the database, and the copy takes longer than other commands.
func TestCountOutlastsTheReadTimeout(t *testing.T) {
	r := testenv.StartRedis(t)
	h, ctx := newShop(r.Client()), context.Background()
	h.put(t, onSale("s", 5, 1))
	h.buy(t, "s", "ann", "k")
	c := redis.NewClient(
		&redis.Options{Addr: r.Addr, ReadTimeout: 250 * time.Millisecond, MaxRetries: 1, ContextTimeoutEnabled: true},
	)
	t.Cleanup(func() { _ = c.Close() })
	var script sync.Once
	resumed := make(chan struct{})
	c.AddHook(afterRange(func() { // the next command is the script; it takes longer than two attempts of another command
		script.Do(func() {
			r.Pause()
			time.AfterFunc(800*time.Millisecond, func() { r.Resume(); close(resumed) })
		})
	}))
	count, err := newShop(c).CountUnits(ctx, spread.Part{SaleID: "s"})
	if err != nil || len(count.Ready) != 1 {
		t.Errorf("count %+v, %v", count, err)
	}
	<-resumed
}

// Fast workers lease a batch between the list of batches and the copy. The count retries until the list is current.
func TestCountRetriesUntilTheListOfBatchesIsCurrent(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		h.put(t, onSale("s", 100, 1))
		for i := range 100 {
			h.buy(t, "s", "b"+strconv.Itoa(i), "k")
		}
		shard, left := keyspace.Shard(0), 50
		counting := clone(t, c)
		addHook(counting, afterRange(func() {
			if left--; left >= 0 {
				id := "batch" + strconv.Itoa(left)
				c.LMove(ctx, shard.Ready(), shard.Batch(id), "RIGHT", "LEFT")
				c.ZAdd(ctx, shard.Leases(), redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: id})
			}
		}))
		count, err := newShop(counting).CountUnits(ctx, spread.Part{SaleID: "s"})
		if err != nil || len(count.Ready) != 50 || len(count.Leased) != 50 {
			t.Errorf("%d ready and %d leased, %v", len(count.Ready), len(count.Leased), err)
		}
	})
}

// afterRange calls then after each ZRANGE.
func afterRange(then func()) testenv.Commands {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if cmd.Name() == "zrange" {
			then()
		}
		return err
	}
}

func TestScanOrdersYieldsEachEntryOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		const n = 2*readChunk + 1
		ctx := context.Background()
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range n {
				p.XAdd(ctx, &redis.XAddArgs{Stream: shard.Orders(), ID: fmt.Sprintf("1-%d", i+1), Values: []any{"m", i}})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		next := 0
		if err := ScanOrders(ctx, c, shard.Orders(), func(text string) {
			if text != strconv.Itoa(next) {
				t.Fatalf("entry %d is %q", next, text)
			}
			next++
		}); err != nil || next != n {
			t.Errorf("%d of %d entries, %v", next, n, err)
		}
	})
}

// A copy can be lost before it is read: Redis is emptied, a replica without the copy is promoted, or the copy expires.
func TestCountRepeatsALostCopy(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 5, 1))
		h.buy(t, "s", "ann", "k")
		loses := &losesCopy{c: c}
		addHook(c, testenv.Commands(loses.process))
		count, err := h.CountUnits(t.Context(), spread.Part{SaleID: "s"})
		if err != nil || len(count.Ready) != 1 || count.Left != 4 || !loses.done {
			t.Errorf("%d orders are ready and %d units left, %v; a copy was lost: %t",
				len(count.Ready), count.Left, err, loses.done)
		}
	})
}

// If a count ends because each copy was lost, its error states that cause.
func TestCountReportsLostCopies(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 5, 1))
		h.buy(t, "s", "ann", "k")
		ctx, cancel := context.WithCancel(t.Context())
		addHook(c, testenv.Commands((&losesCopy{c: c, again: cancel}).process))
		_, err := h.CountUnits(ctx, spread.Part{SaleID: "s"})
		if !errors.Is(err, sale.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "copy of the queue was lost") ||
			strings.Contains(fmt.Sprint(err), "too fast") {
			t.Errorf("%v", err)
		}
	})
}

// losesCopy deletes the first copy of a list before it is read. With again, it deletes the second one too, and calls
// again.
type losesCopy struct {
	c     redisconn.Client
	done  bool
	again func()
}

func (l *losesCopy) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if (!l.done || l.again != nil) && cmd.Name() == "lrange" && keyspace.Temporary(cmd.Args()[1].(string)) {
		if l.done {
			defer l.again()
		}
		l.done = true
		if err := l.c.Unlink(ctx, cmd.Args()[1].(string)).Err(); err != nil {
			return err
		}
	}
	return next(ctx, cmd)
}

// A broken key of the queue concerns all sales of its shard. A broken key of a sale concerns that sale only.
func TestCountOfABrokenQueueConcernsAllSales(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for _, broken := range []struct {
			key    string
			others bool
		}{
			{shard.Ready(), true}, {shard.Delayed(), true}, {shard.Leases(), true}, {shard.Dead().Letters(), true},
			{shard.Dead().Index(), true}, {shard.Orders(), true},
			{shard.Stock("b"), false}, {shard.Sale("b"), false}, {shard.Returns("b"), false},
		} {
			h.put(t, onSale("a", 5, 1))
			h.put(t, onSale("b", 5, 1))
			c.Del(ctx, broken.key)
			c.SAdd(ctx, broken.key, "a set")
			counts, err := h.CountShardUnits(ctx, 0, []string{"a", "b"})
			if !errors.Is(err, sale.ErrUnavailable) || ConcernsOthers(err) != broken.others {
				t.Errorf("%s is broken: %v, which concerns other sales: %t", broken.key, err, ConcernsOthers(err))
			}
			if (counts["a"] == nil) != broken.others || counts["b"] != nil {
				t.Errorf("%s is broken: counts %v", broken.key, counts)
			}
			c.Del(ctx, broken.key)
		}
	})
}
