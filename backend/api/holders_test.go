package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

func (s *site) holders(id string) answer {
	s.t.Helper()
	return s.ask("GET", "/.sluice/sales/"+id+"/holders", "")
}

func TestHoldersAreListedForEdges(t *testing.T) {
	w := newWorld()
	w.accepted, w.holders = 7, []uint32{1, 0x01020304, 0xfffefdfc}
	s := w.serve(t)
	a := s.holders("drop")
	if a.status != 200 || a.body != "\x00\x00\x00\x01\x01\x02\x03\x04\xff\xfe\xfd\xfc" || a.header.Get("Sluice-Holders") != "drop;accepted=7;count=3" {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/octet-stream" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("Content-Type %q, Cache-Control %q", got, a.header.Get("Cache-Control"))
	}
	wantProblem(t, s.holders("other"), 404, "not-found")
	wantProblem(t, s.holders("-"), 400, "bad-request")
	w.do(func() { w.redisErr = errRedisDown })
	wantProblem(t, s.holders("drop"), 503, "temporarily-unavailable")
	w.do(func() { w.redisErr, w.accepted, w.holders = nil, 8, make([]uint32, maxHolders+1) })
	wantProblem(t, s.holders("drop"), 503, "temporarily-unavailable")
}

func TestAListIsMadeOncePerCountOfOrders(t *testing.T) {
	w := newWorld()
	now := time.Unix(1_000_000, 0)
	l := newHolderLists(w, func() time.Time { return now })
	ask := func(lists int, why string) {
		t.Helper()
		list, err := l.of("drop")
		if err != nil || list.accepted != w.accepted || w.lists != lists {
			t.Fatalf("%s: %+v, %v, %d lists made, want %d", why, list, err, w.lists, lists)
		}
	}
	ask(1, "the first time")
	ask(1, "nobody has bought since")
	w.accepted++
	ask(2, "somebody has bought")
	now = now.Add(maxListAge - 1)
	ask(2, "not old yet")
	now = now.Add(1)
	ask(3, "old")
	w.accepted--
	ask(4, "Redis came back older than it was")
}

// slowHolders makes a list in a second.
type slowHolders struct{ *world }

func (s slowHolders) BypassList(ctx context.Context, id string, most int) (admission.BypassList, error) {
	<-time.After(time.Second)
	return s.world.BypassList(ctx, id, most)
}

func TestManyEdgesThatAskAtOnceCostOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.sales["other"] = w.sales["drop"]
		l := newHolderLists(slowHolders{w}, time.Now)
		begin := time.Now()
		var edges sync.WaitGroup
		for i := range 200 {
			edges.Go(func() {
				if _, err := l.of([]string{"drop", "other"}[i%2]); err != nil {
					t.Error(err)
				}
			})
		}
		edges.Wait()
		if took := time.Since(begin); w.lists != 2 || took != 2*time.Second {
			t.Errorf("%d lists for two sales in %s, want one after the other", w.lists, took)
		}
	})
}

func TestKeptListsAreBounded(t *testing.T) {
	w := newWorld()
	l := newHolderLists(w, time.Now)
	ask := func(id string) {
		t.Helper()
		w.sales[id] = w.sales["drop"]
		if _, err := l.of(id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxLists + 10 {
		ask(fmt.Sprint("s", i))
		ask("s0") // in use
	}
	if len(l.kept) != maxLists || l.kept["s0"] == nil || l.kept["s1"] != nil {
		t.Errorf("%d lists are kept, the one in use: %v, the oldest: %v", len(l.kept), l.kept["s0"] != nil, l.kept["s1"] != nil)
	}
	w.holders = make([]uint32, maxHolders)
	for i := range 10 {
		ask(fmt.Sprint("long", i))
	}
	sum := 0
	for _, list := range l.kept {
		sum += len(list.body)
	}
	if sum != l.bytes || sum > maxListBytes || len(l.kept) != maxListBytes/(4*maxHolders) || len(l.order) != len(l.kept) {
		t.Errorf("%d lists of %d bytes are kept, counted as %d", len(l.kept), sum, l.bytes)
	}
}

// Over real stores: whoever the backend would send to his order is in the list.
func TestHoldersOfASaleOverRealStores(t *testing.T) {
	w := serveWhole(t)
	body := fmt.Sprintf(`{"id":"drop","title":"x","stock":2,"price":{"amount":1,"currency":"EUR"},"per_buyer":1,"opens_at":%q}`,
		time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	if a := w.operator.operate("POST", "/admin/v1/sales", body); a.status != 201 {
		t.Fatal(a.body)
	}
	for _, buyer := range []string{"ann", "bob"} {
		if a := w.public.buy(t, buyer); a.status != 202 {
			t.Fatal(a.body)
		}
	}
	a := w.public.holders("drop")
	first, second := crc32.ChecksumIEEE([]byte("ann")), crc32.ChecksumIEEE([]byte("bob"))
	want := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, min(first, second)), max(first, second))
	if a.body != string(want) || a.header.Get("Sluice-Holders") != "drop;accepted=2;count=2" {
		t.Errorf("%x with %q, want %x", a.body, a.header.Get("Sluice-Holders"), want)
	}
	if told := w.public.buy(t, "cid").header.Get("Sluice-Sale"); !strings.HasPrefix(told, "drop;state="+string(sale.StateSoldOut)) || !strings.HasSuffix(told, ";holders=2") {
		t.Errorf("the refusal says %q", told)
	}
}
