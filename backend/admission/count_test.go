package admission

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

// A census takes longer than other calls may: the queue is long when the database has been away, and then the audit is
// wanted most.
func TestCensusOutlastsTheReadTimeout(t *testing.T) {
	r := testenv.StartRedis(t)
	h, ctx := newHouse(r.Client()), context.Background()
	h.put(t, onSale("s", 5, 1))
	h.buy(t, "s", "ann", "k")
	c := redis.NewClient(&redis.Options{Addr: r.Addr, ReadTimeout: 250 * time.Millisecond, MaxRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	var script sync.Once
	c.AddHook(afterRange{func() { // the script is next, and takes longer than two tries of another call
		script.Do(func() { r.Pause(); time.AfterFunc(800*time.Millisecond, r.Resume) })
	}})
	census, err := newHouse(c).CountUnits(ctx, "s")
	if err != nil || len(census.Ready) != 1 {
		t.Errorf("%+v, %v", census, err)
	}
}

// Fast workers lease batch after batch, each between the census's two looks. It goes on until it has seen one instant
// whole.
func TestCensusWaitsForAnInstant(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		h.put(t, onSale("s", 100, 1))
		for i := range 100 {
			h.buy(t, "s", "b"+strconv.Itoa(i), "k")
		}
		shard, left := keyspace.Shard(0), 50
		looking := redis.NewClient(c.Options())
		t.Cleanup(func() { _ = looking.Close() })
		looking.AddHook(afterRange{func() {
			if left--; left >= 0 {
				id := "batch" + strconv.Itoa(left)
				c.LMove(ctx, shard.Ready(), shard.Batch(id), "RIGHT", "LEFT")
				c.ZAdd(ctx, shard.Leases(), redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: id})
			}
		}})
		census, err := newHouse(looking).CountUnits(ctx, "s")
		if err != nil || len(census.Ready) != 50 || len(census.Leased) != 50 {
			t.Errorf("%d ready and %d leased, %v", len(census.Ready), len(census.Leased), err)
		}
	})
}

// afterRange calls then after each ZRANGE.
type afterRange struct{ then func() }

func (afterRange) DialHook(next redis.DialHook) redis.DialHook { return next }

func (afterRange) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h afterRange) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "zrange" {
			h.then()
		}
		return err
	}
}
