package admission

import (
	"errors"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/test/testenv"
)

// Redis with full memory rejects the first write of a purchase, so no unit is taken. Refusals and replays still work.
func TestFullRedisTakesNoUnit(t *testing.T) {
	r := testenv.StartRedis(t)
	c, ctx := r.Client(), t.Context()
	h := newShop(c)
	h.put(t, onSale("s", 2, 1))
	h.put(t, onSale("empty", 1, 1))
	first := h.want(t, "s", "ann", "k", sale.Accepted)
	h.want(t, "empty", "ann", "other", sale.Accepted)
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	bob := Request{SaleID: "s", Buyer: "bob", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"}
	if d, err := h.Admit(ctx, bob); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("bob with full memory: %+v, %v", d, err)
	}
	if d := h.want(t, "s", "ann", "k", sale.Replayed); d.OrderID != first.OrderID {
		t.Errorf("ann's replay returned order %s, want %s", d.OrderID, first.OrderID)
	}
	h.want(t, "s", "ann", "another", sale.AlreadyBought)
	h.want(t, "empty", "bob", "k", sale.SoldOut)
	left, queued := c.Get(ctx, shard.Stock("s")).Val(), c.LLen(ctx, shard.Ready()).Val()
	if left != "1" || queued != 2 || c.HExists(ctx, shard.Buyers("s"), "bob").Val() {
		t.Errorf("%s units left and %d orders queued, want 1 and 2", left, queued)
	}
	if err := c.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	h.want(t, "s", "bob", "k", sale.Accepted)
}
