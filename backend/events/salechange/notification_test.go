package salechange

import (
	"strings"
	"testing"
)

func TestDecodeRejectsUnknownMessages(t *testing.T) {
	for text, want := range map[string]Notification{
		`{"v":1,"type":"sold_out","sale":"shoe","left":0,"version":7}`:  {SoldOut, "shoe", 0},
		`{"v":1,"type":"left","sale":"a.b-c","left":12,"later":[1,{}]}`: {Left, "a.b-c", 12},
		`{"v":1,"type":"opened","sale":"s"}`:                            {Opened, "s", 0},
	} {
		if got, ok := decode(text); !ok || got != want {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		``, `x`, `null`, `[]`, `{}`, `{"v":2,"type":"left","sale":"s"}`, `{"v":1,"type":"burnt","sale":"s"}`,
		`{"v":1,"type":"left"}`,
		`{"v":1,"type":"left","sale":"a b"}`, `{"v":1,"type":"left","sale":"\n"}`,
		`{"v":1,"type":"left","sale":"s","left":-1}`,
		`{"v":1,"type":"left","sale":"s","left":"1"}`, `{"v":1,"type":"left","sale":"s"}` + strings.Repeat(" ", maxMessage),
	} {
		if got, ok := decode(text); ok {
			t.Errorf("%.80s is read as %+v", text, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"v":1,"type":"sold_out","sale":"shoe","left":0,"version":7}`)
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := decode(text); ok && (s.SaleID == "" || strings.ContainsAny(s.SaleID, "\"\\\r\n") || s.Left < 0) {
			t.Fatalf("%q is read as %+v", text, s)
		}
	})
}

func TestListenersReceiveTheirSales(t *testing.T) {
	var h Hub
	shoe, all := h.Listen("shoe"), h.Listen("")
	for _, s := range []Notification{{Left, "shoe", 3}, {SoldOut, "shoe", 0}, {Paused, "hat", 0}} {
		h.Publish(s)
	}
	<-shoe.Wake()
	<-all.Wake()
	if got := shoe.Take(); len(got) != 1 || got[0] != (Notification{SoldOut, "shoe", 0}) {
		t.Errorf("a listener of the shoe got %v, want only the latest notification", got)
	}
	if got := all.Take(); len(got) != 2 || got[0].Type != SoldOut || got[1].SaleID != "hat" {
		t.Errorf("a listener of all sales got %v", got)
	}
	h.Publish(Notification{Left, "shoe", 2})
	if got := all.Take(); len(got) != 0 {
		t.Errorf("a listener of all sales got %v, want no Left", got)
	}
	for range 2 {
		shoe.Close()
		all.Close()
	}
	h.Publish(Notification{SoldOut, "shoe", 0})
	if len(all.Take())+len(h.listeners) != 0 {
		t.Error("a closed listener still receives, or is still registered")
	}
}

func TestSlowListenerIsBounded(t *testing.T) {
	var h Hub
	slow := h.Listen("")
	for i := range 100 * maxPending {
		h.Publish(Notification{Opened, "sale-" + string(rune('a'+i%26)) + strings.Repeat("x", i/26%40), 0})
	}
	if got := len(slow.Take()); got > maxPending || got == 0 {
		t.Errorf("%d notifications are kept for a slow listener, want at most %d", got, maxPending)
	}
}
