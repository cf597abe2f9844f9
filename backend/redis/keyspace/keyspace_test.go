package keyspace

import (
	"strings"
	"testing"

	"sluice/backend/sale"
)

func TestKeysOfAShardShareItsHashTag(t *testing.T) {
	space := Space{Shards: 7}
	shards := map[Shard]bool{}
	for _, id := range []string{"a", "b", "c", "shoe", "42", "x.y", "z-1", "q", "r", "s", "t", "u"} {
		shard := space.ShardOf(id)
		shards[shard] = true
		tag := shard.Ready()[:strings.Index(shard.Ready(), "}")+1]
		for _, key := range []string{
			shard.Ready(), shard.Orders(), shard.Batch("b"), shard.Leases(), shard.Delayed(), shard.Attempts(), shard.Crashes(),
			shard.Dead().Times(), shard.Dead().Letters(), shard.Dead().Index(), shard.Wake(),
			shard.SaleNotifications(), shard.Sales(),
			shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Dedup("{ann}", "{k}"),
			shard.Replicated(),
		} {
			if !strings.HasPrefix(key, tag) || strings.Count(key, "{") != 1 {
				t.Errorf("key %q does not have the tag %q as its only tag", key, tag)
			}
		}
	}
	if len(shards) < 3 {
		t.Errorf("12 sales fall into %d of 7 shards", len(shards))
	}
	if n := len(Space{}.All()); n != 1 {
		t.Errorf("the zero Space has %d shards", n)
	}
}

func TestDedupKeysDifferForDifferentPairs(t *testing.T) {
	a, b := Shard(0).Dedup("a", "b:c"), Shard(0).Dedup("a:b", "c")
	if a == b || len(Shard(0).Dedup(strings.Repeat("x", 255), strings.Repeat("y", 255))) != len(a) {
		t.Fatalf("dedup keys %s and %s", a, b)
	}
}

func TestDeadLineRoundTrip(t *testing.T) {
	m := Message{ID: 7, SaleID: "s", Slot: 2, Serial: 3, Buyer: "ann with spaces", Status: sale.StatusQueued}
	for key, backed := range map[string]bool{"7": true, "raw:ab": false} {
		start := map[bool]string{true: "s 1 ", false: "s 0 "}[backed] + key + " "
		if line := EncodeDeadLine(key, m, backed); !strings.HasPrefix(line, start) {
			t.Errorf("line %q does not begin with %q", line, start)
		}
		if got, err := DecodeDeadLine(EncodeDeadLine(key, m, backed)); err != nil || got != m {
			t.Errorf("round trip of %+v = %+v, %v", m, got, err)
		}
	}
	for _, bad := range []string{
		"", " 0 raw:ab", "s 1 7", "s 2 7 7 s 1 1 ann", "other 1 7 7 s 1 1 ann", "s 1 7 7 s 0 1 ann",
	} {
		if d, err := DecodeDeadLine(bad); err == nil {
			t.Errorf("DecodeDeadLine(%q) = %+v, want an error", bad, d)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, s := range []string{
		"933700545548386305 demo 1 7 ann", "1 s 1 1 a buyer with spaces", "", " ", "1 s 0 1 a", "1 s 1 0 a", "-1 s 1 1 a",
		"01 s 1 1 a",
		"9223372036854775808 s 1 1 a", "1 {s} 1 1 a", "1 s 1 1 ", "1 s 1 1 a\x00b", "1 s 101 1 a", "1 s 1 1", "1  s 1 1 a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := DecodeMessage(s)
		if err != nil {
			return
		}
		if sale.ValidateID(m.SaleID) != nil || sale.ValidateBuyer(m.Buyer) != nil || m.ID <= 0 || m.Slot < 1 || m.Serial < 1 {
			t.Fatalf("DecodeMessage(%q) = %+v, which is not valid", s, m)
		}
		again, err := DecodeMessage(EncodeMessage(m))
		if err != nil || again != m {
			t.Fatalf("round trip of %+v = %+v, %v", m, again, err)
		}
	})
}

func TestSlots(t *testing.T) {
	for _, c := range []struct {
		slots               Slots
		find, count, empty1 int
		with                Slots // order 9 in slot 2
	}{
		{"", 0, 0, 1, ",9"}, {"7", 1, 1, 2, "7,9"}, {",7", 2, 1, 1, ",9"}, {"5,7", 2, 2, 3, "5,9"},
		{"5,,7", 3, 2, 2, "5,9,7"},
		{"77", 0, 1, 2, "77,9"}, {",,", 0, 0, 1, ",9,"},
	} {
		if n := c.slots.Find(7); n != c.find {
			t.Errorf("%q: order 7 in slot %d, want %d", c.slots, n, c.find)
		}
		if n := c.slots.Count(); n != c.count {
			t.Errorf("%q: %d orders, want %d", c.slots, n, c.count)
		}
		if n := c.slots.Empty(1); n != c.empty1 {
			t.Errorf("%q: first empty slot %d, want %d", c.slots, n, c.empty1)
		}
		if s := c.slots.With(9, 2); s != c.with {
			t.Errorf("%q with order 9 in slot 2 = %q, want %q", c.slots, s, c.with)
		}
	}
}
