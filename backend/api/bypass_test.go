package api

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/admission"
	"sluice/backend/web/httpserver/servertest"
)

func (s *site) holders(id string) servertest.Answer {
	s.T.Helper()
	return s.Do("GET", "/.sluice/sales/"+id+"/holders", "")
}

func TestHoldersAreListedForEdges(t *testing.T) {
	w := newWorld()
	w.accepted, w.holders = 7, []uint32{1, 0x01020304, 0xfffefdfc}
	s := w.serve(t)
	a := s.holders("drop")
	if a.Status != 200 || a.Body != "\x00\x00\x00\x01\x01\x02\x03\x04\xff\xfe\xfd\xfc" ||
		a.Header.Get("Sluice-Holders") != "drop;accepted=7;count=3" {
		t.Errorf("%d %v %q", a.Status, a.Header, a.Body)
	}
	if got := a.Header.Get("Content-Type"); got != "application/octet-stream" ||
		a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Content-Type %q, Cache-Control %q", got, a.Header.Get("Cache-Control"))
	}
	servertest.WantProblem(t, s.holders("other"), 404, "not-found")
	servertest.WantProblem(t, s.holders("-"), 400, "bad-request")
	w.do(func() { w.redisErr = servertest.ErrRedisDown })
	servertest.WantProblem(t, s.holders("drop"), 503, "temporarily-unavailable")
	w.do(func() { w.redisErr, w.accepted, w.holders = nil, 8, make([]uint32, maxHolders+1) })
	servertest.WantProblem(t, s.holders("drop"), 503, "temporarily-unavailable")
}

func TestListIsBuiltOncePerNumberOfAcceptances(t *testing.T) {
	w := newWorld()
	now := time.Unix(1_000_000, 0)
	l := newBypassLists(w, func() time.Time { return now })
	want := func(lists int, why string) {
		t.Helper()
		list, err := l.get("drop")
		if err != nil || list.accepted != w.accepted || w.lists != lists {
			t.Fatalf("%s: %+v, %v, %d lists built, want %d", why, list, err, w.lists, lists)
		}
	}
	want(1, "the first request")
	want(1, "no purchase since")
	w.accepted++
	want(2, "a purchase")
	now = now.Add(maxListAge - 1)
	want(2, "not expired")
	now = now.Add(1)
	want(3, "expired")
	w.accepted--
	want(4, "Redis has older data")
}

// slowHolders builds a list in one second.
type slowHolders struct{ *world }

func (s slowHolders) BypassList(ctx context.Context, id string, most int) (admission.BypassList, error) {
	<-time.After(time.Second)
	return s.world.BypassList(ctx, id, most)
}

func TestConcurrentEdgesShareOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.sales["other"] = w.sales["drop"]
		l := newBypassLists(slowHolders{w}, time.Now)
		begin := time.Now()
		var edges sync.WaitGroup
		for i := range 200 {
			edges.Go(func() {
				if _, err := l.get([]string{"drop", "other"}[i%2]); err != nil {
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

func TestCachedListsAreBounded(t *testing.T) {
	w := newWorld()
	l := newBypassLists(w, time.Now)
	get := func(id string) {
		t.Helper()
		w.sales[id] = w.sales["drop"]
		if _, err := l.get(id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxCachedLists + 10 {
		get(fmt.Sprint("s", i))
		get("s0") // in use
	}
	if len(l.lists) != maxCachedLists || l.lists["s0"] == nil || l.lists["s1"] != nil {
		t.Errorf("%d lists are cached, the one in use: %v, the oldest: %v", len(l.lists), l.lists["s0"] != nil,
			l.lists["s1"] != nil)
	}
	w.holders = make([]uint32, maxHolders)
	for i := range 10 {
		get(fmt.Sprint("long", i))
	}
	sum := 0
	for _, list := range l.lists {
		sum += len(list.body)
	}
	if sum != l.bytes || sum > maxCachedBytes || len(l.lists) != maxCachedBytes/(4*maxHolders) {
		t.Errorf("%d lists of %d bytes are cached, counted as %d", len(l.lists), sum, l.bytes)
	}
}
