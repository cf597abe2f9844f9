package refusalcache

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseSaleHint(t *testing.T) {
	for value, want := range map[string]SaleHint{
		"drop;state=sold_out;version=7;ttl=1000;holders=12": {
			State: SoldOut, Version: 7, TTL: time.Second, Holders: 12,
		},
		"drop;state=paused;version=1;ttl=1;holders=0": {
			State: Paused, Version: 1, TTL: time.Millisecond,
		},
		"drop;state=closed;version=0;ttl=86400000;holders=0": {State: Closed, TTL: time.Second},
		"drop;holders=3;ttl=500;version=2;state=sold_out;later=yes;later=no": {
			State: SoldOut, Version: 2, TTL: 500 * time.Millisecond, Holders: 3,
		},
		"drop;state=scheduled;version=2;ttl=120;holders=0;opens=1795773600500": {
			State: Scheduled, Version: 2, TTL: 120 * time.Millisecond, Opens: 1795773600500,
		},
		"drop;state=sold_out;version=7;ttl=1000;holders=999999999999999999": {
			State: SoldOut, Version: 7, TTL: time.Second, Holders: 999999999999999999,
		},
		"drop;state=sold_out;version=7;ttl=999999999999999999;holders=1;quota=a=b=": {
			State: SoldOut, Version: 7, TTL: time.Second, Holders: 1,
		},
	} {
		if got, ok := ParseSaleHint([]byte(value), []byte("drop")); !ok || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", value, got, ok, want)
		}
	}
}

func TestInvalidSaleHintIsRejected(t *testing.T) {
	for _, value := range []string{
		"", "drop", "drop;", ";state=sold_out;version=7;ttl=1000;holders=1",
		"other;state=sold_out;version=7;ttl=1000;holders=1",
		"Drop;state=sold_out;version=7;ttl=1000;holders=1",
		" drop;state=sold_out;version=7;ttl=1000;holders=1",
		"drop;state=sold_out;version=7;ttl=1000",
		"drop;state=sold_out;version=7;holders=1",
		"drop;state=sold_out;ttl=1000;holders=1",
		"drop;version=7;ttl=1000;holders=1",
		"drop;state=open;version=7;ttl=1000;holders=1",
		"drop;state=SOLD_OUT;version=7;ttl=1000;holders=1",
		"drop;state=sold_out;version=7;ttl=0;holders=1",
		"drop;state=sold_out;version=7;ttl=-1;holders=1",
		"drop;state=sold_out;version=7;ttl=1e3;holders=1",
		"drop;state=sold_out;version=7;ttl=1000;holders=",
		"drop;state=sold_out;version=7;ttl=1000;holders=+1",
		"drop;state=sold_out;version=7;ttl=1000;holders=1 ",
		"drop;state=sold_out;version=7;ttl=1000;holders=1;",
		"drop;state=sold_out;version=7;ttl=1000;;holders=1",
		"drop;state=sold_out;version=7;ttl=1000;holders=1;odd",
		"drop;state=sold_out;version=7;ttl=1000;holders=1;holders=2",
		"drop;state=sold_out;state=sold_out;version=7;ttl=1000;holders=1",
		"drop;state=sold_out;version=7;ttl=1000;holders=1000000000000000000",
		"drop;state=scheduled;version=7;ttl=1000;holders=0",
		"drop;state=scheduled;version=7;ttl=1000;holders=0;opens=soon",
		"drop;state=sold_out;version=7;ttl=1000;holders=1, drop;state=sold_out;version=7;ttl=1000;holders=1",
	} {
		if got, ok := ParseSaleHint([]byte(value), []byte("drop")); ok {
			t.Errorf("%q is accepted as %+v", value, got)
		}
	}
	for _, id := range []string{"", ".", "..", "a b", "a;b", "-a", "a%41", "a\r\nb", strings.Repeat("a", 65)} {
		if _, ok := ParseSaleHint([]byte(id+";state=sold_out;version=7;ttl=1000;holders=1"), []byte(id)); ok {
			t.Errorf("the sale id %q is accepted", id)
		}
	}
}

func FuzzSaleHint(f *testing.F) {
	f.Add("drop;state=sold_out;version=7;ttl=1000;holders=12", "drop")
	f.Add("drop;state=scheduled;version=7;ttl=1000;holders=12;opens=1795773600500;x=y", "drop")
	f.Add("drop;state=closed;version=7;ttl=1000;holders=12;", "drop")
	f.Fuzz(func(t *testing.T, value, id string) {
		hint, ok := ParseSaleHint([]byte(value), []byte(id))
		if !ok {
			return
		}
		if hint.TTL <= 0 || hint.TTL > maxTTL || hint.Version < 0 || hint.Holders < 0 || hint.Opens < 0 ||
			!validID([]byte(id)) {
			t.Fatalf("%q is accepted as %+v", value, hint)
		}
		plain := fmt.Sprintf("%s;state=%s;version=%d;ttl=%d;holders=%d;opens=%d", id, hint.State, hint.Version,
			hint.TTL.Milliseconds(), hint.Holders, hint.Opens)
		if again, ok := ParseSaleHint([]byte(plain), []byte(id)); !ok || again != hint {
			t.Fatalf("%q is parsed as %+v, and %q as %+v", value, hint, plain, again)
		}
	})
}

func FuzzBypassList(f *testing.F) {
	f.Add("drop;accepted=12;count=2", []byte("\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Add("drop;count=0;accepted=0", []byte{})
	f.Add("drop;accepted=12;count=1048577", []byte{1})
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		var b budget
		list, err := readBypassList(header, strings.NewReader(string(body)), "drop", &b)
		if err != nil {
			if list != nil || b.used.Load() != 0 {
				t.Fatalf("%q is rejected, and %d entries are reserved", header, b.used.Load())
			}
			return
		}
		if list.len()*hashSize != len(body) || int(b.used.Load()) != list.len() {
			t.Fatalf("%d bytes, %d entries, %d reserved", len(body), list.len(), b.used.Load())
		}
		for i := range list.len() {
			if !list.contains(list.at(i)) {
				t.Fatalf("entry %d of %x is not found", i, body)
			}
		}
	})
}
