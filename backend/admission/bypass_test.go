package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

func TestBypassListHasTheBuyers(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		ctx := context.Background()
		if _, err := h.BypassList(ctx, "s", 10); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("bypass list of an unknown sale: %v", err)
		}
		h.put(t, onSale("s", 10, 2))
		if got, err := h.BypassList(ctx, "s", 10); err != nil || got.Accepted != 0 || len(got.Sums) != 0 {
			t.Fatalf("before the first order: %+v, %v", got, err)
		}
		var want []uint32
		for _, buyer := range []string{"ann", "bob", "Zoë ✓"} {
			h.want(t, "s", buyer, "1", sale.Accepted)
			want = append(want, crc32.ChecksumIEEE([]byte(buyer)))
		}
		h.want(t, "s", "ann", "2", sale.Accepted) // a second order of the same buyer
		slices.Sort(want)
		got, err := h.BypassList(ctx, "s", 3)
		if err != nil || got.Accepted != 4 || !slices.Equal(got.Sums, want) {
			t.Fatalf("list %+v, %v; want %v after 4 orders", got, err, want)
		}
		if _, err := h.BypassList(ctx, "s", 2); !errors.Is(err, ErrBypassListTooLong) {
			t.Errorf("three buyers with a limit of two: %v", err)
		}
	})
}

// A list that is read during purchases has the buyer of every order that it counts.
func TestBypassListIsCompleteUpToItsCount(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 1_000_000, 1))
		var accepted atomic.Int64
		var mu sync.Mutex
		var order []string // buyers by serial, one buyer at a time
		stop := make(chan struct{})
		var buying sync.WaitGroup
		buying.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				buyer := fmt.Sprint("buyer-", i)
				mu.Lock()
				order = append(order, buyer)
				mu.Unlock()
				r := Request{SaleID: "s", Buyer: buyer, Key: "k", KeyTTL: time.Minute, Fingerprint: "f"}
				if _, err := h.Admit(context.Background(), r); err != nil {
					t.Error(err)
					return
				}
				accepted.Add(1)
			}
		})
		var before int64
		for range 30 {
			before = accepted.Load()
			got, err := h.BypassList(context.Background(), "s", 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			if got.Accepted < before {
				t.Fatalf("%d orders accepted, and the list counts %d", before, got.Accepted)
			}
			if !slices.IsSorted(got.Sums) || len(slices.Compact(slices.Clone(got.Sums))) != len(got.Sums) {
				t.Fatal("the list is not sorted or not unique")
			}
			mu.Lock()
			first := slices.Clone(order[:got.Accepted])
			mu.Unlock()
			for _, buyer := range first {
				if _, found := slices.BinarySearch(got.Sums, crc32.ChecksumIEEE([]byte(buyer))); !found {
					t.Fatalf("%s has one of the first %d orders and is missing", buyer, got.Accepted)
				}
			}
		}
		close(stop)
		buying.Wait()
	})
}

func TestBypassListReportsUnavailableRedis(t *testing.T) {
	c := testenv.NewOnceClient("127.0.0.1:1")
	defer c.Close()
	if _, err := newShop(c).BypassList(context.Background(), "s", 10); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// The segments of a sale are read concurrently: a sale can have 1000 of them.
func TestBypassListReadsSegmentsConcurrently(t *testing.T) {
	c := testenv.StartRedis(t).Client()
	h := newHalves(t, c, 2, 2)
	var lengths, scans sync.WaitGroup
	lengths.Add(2)
	scans.Add(2)
	c.AddHook(testenv.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if both := map[string]*sync.WaitGroup{"hlen": &lengths, "hscan": &scans}[cmd.Name()]; both != nil {
			both.Done()
			both.Wait() // until two of them are in progress
		}
		return next(ctx, cmd)
	}))
	got, err := NewStock(StockConfig{Client: c, Space: h.space}).BypassList(t.Context(), "s", 10)
	if err != nil || len(got.Sums) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Gateways request a list that is too long every half a second. Its buyers, up to two million, are not read.
func TestBypassListThatIsTooLongIsNotRead(t *testing.T) {
	c := testenv.StartRedis(t).Client()
	h := newHalves(t, c, 2, 2)
	for segment, buyers := range [][]string{{"ann", "bob", "cat"}, {"dan"}} {
		key := h.shard(segment).Buyers("s")
		for _, buyer := range buyers {
			if err := c.HSet(t.Context(), key, buyer, "1").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var reads atomic.Int64
	c.AddHook(testenv.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "hscan" {
			reads.Add(1)
		}
		return next(ctx, cmd)
	}))
	stock := NewStock(StockConfig{Client: c, Space: h.space})
	if _, err := stock.BypassList(t.Context(), "s", 3); !errors.Is(err, ErrBypassListTooLong) || reads.Load() != 0 {
		t.Errorf("four buyers with a limit of three: %v after %d reads", err, reads.Load())
	}
	if got, err := stock.BypassList(t.Context(), "s", 4); err != nil || len(got.Sums) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}
