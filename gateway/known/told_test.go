package known

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestToldIsReadWhole(t *testing.T) {
	for value, want := range map[string]Told{
		"drop;state=sold_out;version=7;ttl=1000;holders=12":                         {State: SoldOut, Version: 7, TTL: time.Second, Holders: 12},
		"drop;state=paused;version=1;ttl=1;holders=0":                               {State: Paused, Version: 1, TTL: time.Millisecond},
		"drop;state=closed;version=0;ttl=86400000;holders=0":                        {State: Closed, TTL: time.Second},
		"drop;holders=3;ttl=500;version=2;state=sold_out;later=yes;later=no":        {State: SoldOut, Version: 2, TTL: 500 * time.Millisecond, Holders: 3},
		"drop;state=scheduled;version=2;ttl=120;holders=0;opens=1795773600500":      {State: Scheduled, Version: 2, TTL: 120 * time.Millisecond, Opens: 1795773600500},
		"drop;state=sold_out;version=7;ttl=1000;holders=999999999999999999":         {State: SoldOut, Version: 7, TTL: time.Second, Holders: 999999999999999999},
		"drop;state=sold_out;version=7;ttl=999999999999999999;holders=1;quota=a=b=": {State: SoldOut, Version: 7, TTL: time.Second, Holders: 1},
	} {
		if got, ok := ReadTold([]byte(value), []byte("drop")); !ok || got != want {
			t.Errorf("%q is read as %+v, %v, want %+v", value, got, ok, want)
		}
	}
}

func TestToldThatIsNotWholeIsNotBelieved(t *testing.T) {
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
		if got, ok := ReadTold([]byte(value), []byte("drop")); ok {
			t.Errorf("%q is believed, as %+v", value, got)
		}
	}
	for _, id := range []string{"", ".", "..", "a b", "a;b", "-a", "a%41", "a\r\nb", strings.Repeat("a", 65)} {
		if _, ok := ReadTold([]byte(id+";state=sold_out;version=7;ttl=1000;holders=1"), []byte(id)); ok {
			t.Errorf("a sale may be called %q", id)
		}
	}
}

func FuzzTold(f *testing.F) {
	f.Add("drop;state=sold_out;version=7;ttl=1000;holders=12", "drop")
	f.Add("drop;state=scheduled;version=7;ttl=1000;holders=12;opens=1795773600500;x=y", "drop")
	f.Add("drop;state=closed;version=7;ttl=1000;holders=12;", "drop")
	f.Fuzz(func(t *testing.T, value, id string) {
		told, ok := ReadTold([]byte(value), []byte(id))
		if !ok {
			return
		}
		if told.TTL <= 0 || told.TTL > MostTTL || told.Version < 0 || told.Holders < 0 || told.Opens < 0 || !validID([]byte(id)) {
			t.Fatalf("%q is read as %+v", value, told)
		}
		plain := fmt.Sprintf("%s;state=%s;version=%d;ttl=%d;holders=%d;opens=%d", id, told.State, told.Version, told.TTL.Milliseconds(), told.Holders, told.Opens)
		if again, ok := ReadTold([]byte(plain), []byte(id)); !ok || again != told {
			t.Fatalf("%q is read as %+v, and %q as %+v", value, told, plain, again)
		}
	})
}

func FuzzHolders(f *testing.F) {
	f.Add("drop;accepted=12;count=2", []byte("\x00\x00\x00\x01\x00\x00\x00\x02"))
	f.Add("drop;count=0;accepted=0", []byte{})
	f.Add("drop;accepted=12;count=1048577", []byte{1})
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		var room room
		list, err := readList(header, strings.NewReader(string(body)), "drop", &room)
		if err != nil {
			if list != nil || room.taken.Load() != 0 {
				t.Fatalf("%q is refused, and %d sums are kept", header, room.taken.Load())
			}
			return
		}
		if list.count()*sumSize != len(body) || int(room.taken.Load()) != list.count() {
			t.Fatalf("%d bytes are a list of %d, for which there is room for %d", len(body), list.count(), room.taken.Load())
		}
		for i := range list.count() {
			if !list.has(list.at(i)) {
				t.Fatalf("number %d of %x is not found", i, body)
			}
		}
	})
}
