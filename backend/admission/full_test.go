package admission

import (
	"errors"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/test/testenv"
)

// A Redis without memory refuses the first write of a purchase, so that no unit is taken; who gets no unit is told so
// as ever, and who has an order finds it.
func TestFullRedisTakesNoUnit(t *testing.T) {
	r := testenv.StartRedis(t)
	c, ctx := r.Client(), t.Context()
	h := newHouse(c)
	h.put(t, onSale("s", 2, 1))
	h.put(t, onSale("empty", 1, 1))
	first := h.want(t, "s", "ann", "k", sale.Accepted)
	h.want(t, "empty", "ann", "other", sale.Accepted)
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if d, err := h.Admit(ctx, Request{SaleID: "s", Buyer: "bob", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"}); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("without memory bob is told %+v, %v", d, err)
	}
	if d := h.want(t, "s", "ann", "k", sale.Replayed); d.OrderID != first.OrderID {
		t.Errorf("ann's order is %s, want %s", d.OrderID, first.OrderID)
	}
	h.want(t, "s", "ann", "another", sale.AlreadyBought)
	h.want(t, "empty", "bob", "k", sale.SoldOut)
	if left, queued := c.Get(ctx, shard.Stock("s")).Val(), c.LLen(ctx, shard.Ready()).Val(); left != "1" || queued != 2 || c.HExists(ctx, shard.Buyers("s"), "bob").Val() {
		t.Errorf("%s units are left and %d orders queued, want 1 and 2", left, queued)
	}
	if err := c.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	h.want(t, "s", "bob", "k", sale.Accepted)
}
