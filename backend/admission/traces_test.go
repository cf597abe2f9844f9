package admission

import (
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// waiters returns a group of requests with order ids.
func (h *shop) waiters(t *testing.T, requests ...Request) []*waiter {
	t.Helper()
	var all []*waiter
	for _, r := range requests {
		id, err := h.Admitter.cfg.IDs.Next(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		r.KeyTTL, r.Fingerprint = time.Minute, "f"
		all = append(all, &waiter{request: r, id: id})
	}
	return all
}

// The traceparent of an accepted order is stored under its own key. Messages do not contain it.
func TestTraceIsStoredWithItsOrder(t *testing.T) {
	for _, stream := range []bool{false, true} {
		name := map[bool]string{false: "list", true: "stream"}[stream]
		t.Run(name, func(t *testing.T) {
			onEachRedis(t, func(t *testing.T, c redisconn.Client) {
				h := newShop(c)
				h.Admitter.cfg.Stream = stream
				h.put(t, onSale("s", 3, 1))
				h.want(t, "s", "dan", "k", sale.Accepted)
				group := h.waiters(t,
					Request{SaleID: "s", Buyer: "ann", Key: "k"},
					Request{SaleID: "s", Buyer: "bob", Key: "k", Trace: parent},
					Request{SaleID: "s", Buyer: "dan", Key: "other", Trace: parent}, // has an order
					Request{SaleID: "s", Buyer: "cid", Key: "k", Trace: parent},     // sold out
				)
				for range 2 { // the client repeats the script after a lost reply
					h.runScript(t.Context(), c, h.keys.get(keyspace.Space{}, spread.Part{SaleID: "s"}), group)
				}
				for i, want := range []sale.Outcome{sale.Accepted, sale.Accepted, sale.AlreadyBought, sale.Accepted} {
					if i == 3 {
						want = sale.SoldOut
					}
					if w := group[i]; w.err != nil || w.decision.Outcome != want {
						t.Fatalf("%s: %s, %v, want %s", w.request.Buyer, w.decision.Outcome, w.err, want)
					}
				}
				bob := group[1]
				keys := keysLike(t.Context(), c, shard.Trace("*"))
				if len(keys) != 1 || keys[0] != shard.Trace(bob.id.String()) {
					t.Errorf("trace keys %v", keys)
				}
				if got := c.Get(t.Context(), shard.Trace(bob.id.String())).Val(); got != parent {
					t.Errorf("bob's trace is %q", got)
				}
				if left := c.PTTL(t.Context(), shard.Trace(bob.id.String())).Val(); left <= 0 || left > traceTTL {
					t.Errorf("bob's trace expires in %v", left)
				}
				for _, m := range queued(t, c, stream) {
					if decoded, err := keyspace.DecodeMessage(m); err != nil || keyspace.EncodeMessage(decoded) != m {
						t.Errorf("message %q: %v", m, err)
					}
				}
			})
		})
	}
}

func queued(t *testing.T, c redisconn.Client, stream bool) []string {
	t.Helper()
	messages := c.LRange(t.Context(), shard.Ready(), 0, -1).Val()
	if stream {
		for _, e := range c.XRange(t.Context(), shard.Orders(), "-", "+").Val() {
			m, _ := e.Values["m"].(string)
			messages = append(messages, m)
		}
	}
	if len(messages) != 3 {
		t.Errorf("%d messages, want 3: %q", len(messages), messages)
	}
	return messages
}

// An order is accepted even if its trace cannot be stored. In this test, Redis rejects a lifetime of 0.
func TestOrderIsAcceptedWhenItsTraceCannotBeStored(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 3, 1))
		w := h.waiters(t, Request{SaleID: "s", Buyer: "ann", Key: "k"})[0]
		k := h.keys.get(keyspace.Space{}, spread.Part{SaleID: "s"})
		keys := []string{
			k.sale, k.stock, k.buyers, k.ready, k.wake, shard.Dedup("ann", "k"), shard.Trace(w.id.String()),
		}
		args := []any{"s", 1000, 0, "0 1 " + parent, w.id.String(), "ann", "f 60000"}
		result, err := h.script.Run(t.Context(), c, keys, args...).Text()
		if err != nil || result != "accepted" {
			t.Fatalf("result %q, %v", result, err)
		}
		left, waiting := c.Get(t.Context(), shard.Stock("s")).Val(), c.LLen(t.Context(), shard.Ready()).Val()
		if left != "2" || waiting != 1 || c.Exists(t.Context(), shard.Trace(w.id.String())).Val() != 0 {
			t.Errorf("%s units left and %d orders queued", left, waiting)
		}
	})
}
