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
			shard.Ready(), shard.Orders(), shard.Batch("b"), shard.Leases(), shard.Delayed(), shard.Attempts(), shard.Crashes(), shard.Dead(), shard.DeadLetters(), shard.DeadIndex(),
			shard.Wake(), shard.SaleNotifications(), shard.Sales(), shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Dedup("{ann}", "{k}"), shard.Replicated(),
		} {
			if !strings.HasPrefix(key, tag) || strings.Count(key, "{") != 1 {
				t.Errorf("key %q does not carry the tag %q alone", key, tag)
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

func TestDedupKeepsPairsApart(t *testing.T) {
	a, b := Shard(0).Dedup("a", "b:c"), Shard(0).Dedup("a:b", "c")
	if a == b || len(Shard(0).Dedup(strings.Repeat("x", 255), strings.Repeat("y", 255))) != len(a) {
		t.Fatalf("%s %s", a, b)
	}
}

func TestDeadLineIsReadAsItIsWritten(t *testing.T) {
	m := Message{ID: 7, SaleID: "s", Slot: 2, Serial: 3, Buyer: "ann with spaces", Status: sale.StatusQueued}
	for _, want := range []DeadLine{{"7", m, true}, {"raw:ab", m, false}} {
		if got, err := DecodeDeadLine(EncodeDeadLine(want)); err != nil || got != want {
			t.Errorf("%+v, written and read again, is %+v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", " 0 raw:ab", "s 1 7", "s 2 7 7 s 1 1 ann", "other 1 7 7 s 1 1 ann", "s 1 7 7 s 0 1 ann"} {
		if d, err := DecodeDeadLine(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, d)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	for _, s := range []string{
		"933700545548386305 demo 1 7 ann", "1 s 1 1 a buyer with spaces", "", " ", "1 s 0 1 a", "1 s 1 0 a", "-1 s 1 1 a", "01 s 1 1 a",
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
			t.Fatalf("%q is read as %+v", s, m)
		}
		again, err := DecodeMessage(EncodeMessage(m))
		if err != nil || again != m {
			t.Fatalf("%+v, written and read again, is %+v, %v", m, again, err)
		}
	})
}
