package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"sluice/backend/sale"
)

func entry(n int64, buyer string) sale.Order {
	return sale.Order{ID: sale.OrderID(n), SaleID: "shoe", Buyer: buyer, Slot: 1, Status: sale.StatusQueued}
}

func readAll(t testing.TB, text []byte) (orders []sale.Order, broken int) {
	t.Helper()
	broken, err := read(bytes.NewReader(text), func(o sale.Order) { orders = append(orders, o) })
	if err != nil {
		t.Fatal(err)
	}
	return orders, broken
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		var want []sale.Order
		for range rapid.IntRange(0, 20).Draw(t, "orders") {
			o := entry(rapid.Int64Range(1, 1<<62).Draw(t, "id"), rapid.StringMatching(`[ -~äß]{1,80}`).Draw(t, "buyer"))
			want = append(want, o)
			text = appendRecord(text, o)
		}
		var got []sale.Order
		broken, err := read(bytes.NewReader(text), func(o sale.Order) { got = append(got, o) })
		if err != nil || broken != 0 || len(got) != len(want) {
			t.Fatalf("%d of %d records, %d broken, %v", len(got), len(want), broken, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("got %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// A journal that is truncated at any byte has every record before it. One with any byte changed has all but one or two.
func TestBrokenRecordsDoNotAffectOthers(t *testing.T) {
	var text []byte
	for i := range 10 {
		text = appendRecord(text, entry(int64(1000+i), strings.Repeat("x", i+1)))
	}
	for cut := range len(text) {
		orders, broken := readAll(t, text[:cut])
		whole := bytes.Count(text[:cut], []byte("\n"))
		torn := cut > 0 && text[cut-1] != '\n'
		if len(orders) != whole || (broken == 1) != torn || broken > 1 {
			t.Fatalf("truncated at %d: %d orders, %d broken; want %d orders", cut, len(orders), broken, whole)
		}
	}
	for at := range text {
		for _, bit := range []byte{1, 0x20, 0x80} {
			changed := bytes.Clone(text)
			changed[at] ^= bit
			orders, broken := readAll(t, changed)
			if len(orders) < 8 || broken == 0 {
				t.Fatalf("byte %d: %d orders, %d broken", at, len(orders), broken)
			}
			for _, o := range orders {
				if o.ID < 1000 || o.ID > 1009 || o.Buyer != strings.Repeat("x", int(o.ID-1000)+1) {
					t.Fatalf("byte %d: an order that was not written: %+v", at, o)
				}
			}
		}
	}
}

func TestReadErrorIsReported(t *testing.T) {
	text := appendRecord(nil, entry(1, "ann"))
	n := 0
	_, err := read(iotest.DataErrReader(iotest.TimeoutReader(bytes.NewReader(text))), func(sale.Order) { n++ })
	if !errors.Is(err, iotest.ErrTimeout) && n != 1 {
		t.Errorf("%d orders, %v", n, err)
	}
}

// Reading ends for any input, and accepts only records that appendRecord writes.
func FuzzRead(f *testing.F) {
	f.Add(appendRecord(appendRecord(nil, entry(1, "ann")), entry(2, "bob van dam")))
	f.Add([]byte("00000000 1 shoe ann\n\n\n"))
	f.Add([]byte(strings.Repeat("x", 70<<10) + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := 0
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if len(line) > 0 {
				lines++
			}
		}
		orders, broken := readAll(t, text)
		if len(orders)+broken != lines {
			t.Fatalf("%d lines, %d orders, %d broken", lines, len(orders), broken)
		}
		for _, o := range orders {
			if !bytes.Contains(text, appendRecord(nil, o)) {
				t.Fatalf("appendRecord does not write %+v so", o)
			}
		}
	})
}
