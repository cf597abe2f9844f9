package refusalcache

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRecordHitsUntilItExpires(t *testing.T) {
	for _, state := range States {
		f := newFixture(t)
		f.want("ann", Miss)
		f.store(state, 7, 0)
		for range 799 {
			if r := f.want("ann", Hit); r.State != state || string(r.Body) != string(state) {
				t.Fatalf("record has state %s, want %s", r.State, state)
			}
			f.advance(time.Millisecond)
		}
		f.advance(time.Millisecond)
		f.want("ann", Revalidate) // and never completes
		for range 200 {
			f.want("bob", Hit)
			f.advance(time.Millisecond)
		}
		f.want("bob", Miss)
	}
}

func TestTTLCountsFromTheRequest(t *testing.T) {
	f := newFixture(t)
	sent := f.ms.Load()
	f.advance(900 * time.Millisecond)
	f.storeSentAt(sent, SoldOut, 7, 0)
	f.want("ann", Revalidate)
	f.want("bob", Hit)
	f.advance(100 * time.Millisecond)
	f.want("bob", Miss)
	f.storeSentAt(sent, SoldOut, 7, 0)
	f.want("bob", Miss)
}

func TestBypassListMissesWhileOthersHit(t *testing.T) {
	f := newFixture(t)
	f.setList(3, "ann", "bob", "cid")
	f.store(SoldOut, 7, 3)
	for _, name := range []string{"ann", "bob", "cid"} {
		f.want(name, Miss)
	}
	f.want("dan", Hit)
	for _, token := range []string{"", "x", "a.b", "a.!.c"} {
		if _, v := f.lookupToken([]byte(token)); v != Hit {
			t.Errorf("token %q: result %d, want a hit", token, v)
		}
	}
	for _, claims := range []string{`{"sub":"d\u0061n"}`, `{"sub":"dan","sub":"ann"}`, `{}`} {
		if _, v := f.lookupToken(bearer(plainHeader, claims)); v != Miss {
			t.Errorf("claims %s: result %d, want a miss", claims, v)
		}
	}
}

func TestRecordIsNotUsedBeforeTheBypassListArrives(t *testing.T) {
	f := newFixture(t)
	gate := make(chan struct{})
	f.gate = gate
	f.setList(3, "ann")
	hint := SaleHint{State: SoldOut, Version: 7, TTL: time.Second, Holders: 3}
	for range 10 {
		f.Store(f.ms.Load(), f.ms.Load(), "drop", hint, Response{Status: 409})
		f.want("dan", Miss)
		f.advance(10 * time.Millisecond)
	}
	close(gate)
	if n := f.countFetches(); n != 1 {
		t.Errorf("%d concurrent fetches, want 1", n)
	}
	f.want("dan", Hit)
	f.want("ann", Miss)
}

func TestOutdatedBypassListIsNotUsed(t *testing.T) {
	f := newFixture(t)
	f.setList(2, "ann", "bob") // before the third order
	f.store(SoldOut, 7, 3)
	f.want("dan", Miss)
	f.advance(499 * time.Millisecond)
	f.store(SoldOut, 7, 3)
	if n := f.countFetches(); n != 1 {
		t.Errorf("%d fetches within half a second, want 1", n)
	}
	f.setList(3, "ann", "bob", "cid")
	f.advance(time.Millisecond)
	f.store(SoldOut, 7, 3)
	f.want("dan", Hit)
	f.want("cid", Miss)
	if n := f.countFetches(); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

// The bypass list of a record expires while the next one is fetched. The record gets the new list although purchases
// have looked it up with the old one.
func TestRecordGetsTheNextBypassListDuringLookups(t *testing.T) {
	f := newFixture(t)
	f.setList(3, "ann", "bob", "cid")
	f.store(SoldOut, 7, 3)
	f.setList(3, "ann", "bob", "eve")
	gate := make(chan struct{})
	f.gate = gate
	store := func() {
		f.Store(f.ms.Load(), f.ms.Load(), "drop", SaleHint{State: SoldOut, Version: 7, TTL: time.Second, Holders: 3},
			Response{Status: 409})
	}
	f.advance(listExpiry - 20*time.Millisecond)
	store()
	started, stop := make(chan struct{}), make(chan struct{})
	token := bearer(plainHeader, `{"sub":"dan"}`)
	var lookups sync.WaitGroup
	lookups.Go(func() {
		close(started)
		for {
			f.lookupToken(token)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	<-started
	for range 10_000 { // while the other goroutine looks up, too
		f.want("cid", Miss)
	}
	f.advance(40 * time.Millisecond)
	store()
	f.want("dan", Miss)
	close(gate)
	f.fetches.Wait()
	f.want("dan", Hit)
	f.want("cid", Hit)
	f.want("eve", Miss)
	close(stop)
	lookups.Wait()
}

func TestFailedFetchIsRetriedAfterHalfASecond(t *testing.T) {
	f := newFixture(t)
	f.failFetches()
	for i := range 20 { // two seconds
		f.store(SoldOut, 7, 1)
		f.want("dan", Miss)
		if n, want := f.countFetches(), 1+i/5; n != want {
			t.Fatalf("after %d ms: %d fetches, want %d", i*100, n, want)
		}
		f.advance(100 * time.Millisecond)
	}
	f.setList(1, "ann")
	f.store(SoldOut, 7, 1)
	f.want("dan", Hit)
}

func TestCloseCancelsFetches(t *testing.T) {
	f := newFixture(t)
	f.gate = make(chan struct{})
	f.Store(f.ms.Load(), f.ms.Load(), "drop", SaleHint{State: SoldOut, TTL: time.Second, Holders: 1}, Response{})
	closed := make(chan struct{})
	go func() { f.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close waits for a backend that does not respond")
	}
	f.Store(f.ms.Load(), f.ms.Load(), "other", SaleHint{State: SoldOut, TTL: time.Second, Holders: 1}, Response{})
	if n := f.countFetches(); n != 1 {
		t.Errorf("a fetch started after Close")
	}
}

func TestInvalidBypassListIsRejected(t *testing.T) {
	good := "\x00\x00\x00\x01\x00\x00\x00\x02"
	for what, list := range map[string]struct{ header, body string }{
		"another sale":  {"other;accepted=1;count=2", good},
		"no count":      {"drop;accepted=1", good},
		"no serial":     {"drop;count=2", good},
		"no header":     {"", good},
		"too short":     {"drop;accepted=1;count=2", good[:7]},
		"too long":      {"drop;accepted=1;count=2", good + "x"},
		"a double":      {"drop;accepted=1;count=2", good[:4] + good[:4]},
		"not in order":  {"drop;accepted=1;count=2", good[4:] + good[:4]},
		"beyond bounds": {fmt.Sprintf("drop;accepted=1;count=%d", maxSaleEntries+1), good},
	} {
		f := newFixture(t)
		f.header, f.body = list.header, []byte(list.body)
		f.store(SoldOut, 7, 1)
		if f.want("dan", Miss); f.Entries() != 0 {
			t.Errorf("%s: %d entries in memory, want 0", what, f.Entries())
		}
	}
}

func TestAcceptedOrderInvalidatesTheRecord(t *testing.T) {
	f := newFixture(t)
	f.setList(1, "ann")
	f.store(SoldOut, 7, 1)
	f.want("dan", Hit)
	f.advance(800 * time.Millisecond)
	f.want("dan", Revalidate)
	f.OrderAccepted(f.ms.Load(), []byte("drop"))
	f.want("eve", Miss)
}

func TestRefusalSentBeforeAnAcceptedOrderIsNotStored(t *testing.T) {
	f := newFixture(t)
	f.setList(1, "ann")
	sent := f.ms.Load()
	f.advance(5 * time.Millisecond)
	f.OrderAccepted(f.ms.Load(), []byte("drop")) // bob's, after the refusal was decided and before it arrived
	f.advance(5 * time.Millisecond)
	f.storeSentAt(sent, SoldOut, 7, 1)
	f.want("bob", Miss)
	f.setList(2, "ann", "bob")
	f.store(SoldOut, 7, 2)
	f.want("bob", Miss)
	f.want("dan", Hit)
}

func TestOneRequestRevalidates(t *testing.T) {
	f := newFixture(t)
	f.store(SoldOut, 7, 0)
	f.advance(850 * time.Millisecond)
	var mu sync.Mutex
	count := map[Result]int{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			_, v := f.lookup(fmt.Sprint("buyer-", i))
			mu.Lock()
			count[v]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if count[Revalidate] != 1 || count[Hit] != 63 {
		t.Errorf("%d revalidations and %d hits, want 1 and 63", count[Revalidate], count[Hit])
	}
	f.store(SoldOut, 7, 0)
	f.want("dan", Hit)
	f.advance(799 * time.Millisecond)
	f.want("dan", Hit)
	f.advance(time.Millisecond)
	f.want("dan", Revalidate)
}

func TestReleaseLetsAnotherRequestRevalidate(t *testing.T) {
	f := newFixture(t)
	f.store(SoldOut, 7, 0)
	f.advance(900 * time.Millisecond)
	f.want("forger", Revalidate).Release()
	f.want("dan", Revalidate)
	f.want("dan", Miss) // the same buyer again: the first request may obtain an order
	f.want("eve", Hit)
	if _, v := f.lookupToken(nil); v != Hit {
		t.Error("a request without a token revalidates, but the edge never forwards it")
	}
}

func TestOlderResponseDoesNotReplaceANewerOne(t *testing.T) {
	f := newFixture(t)
	early := f.ms.Load()
	f.advance(10 * time.Millisecond)
	f.store(Closed, 8, 0)
	f.storeSentAt(early, SoldOut, 7, 0)
	if r := f.want("dan", Hit); r.State != Closed {
		t.Errorf("state %s, want closed", r.State)
	}
	f.advance(time.Millisecond)
	f.store(Paused, 9, 0)
	if r := f.want("dan", Hit); r.State != Paused {
		t.Errorf("state %s, want paused", r.State)
	}
}

func TestNewHolderDisablesTheRecordUntilTheListIsFetched(t *testing.T) {
	f := newFixture(t)
	f.setList(1, "ann")
	f.store(SoldOut, 7, 1)
	f.want("bob", Hit)
	f.failFetches()
	f.advance(10 * time.Millisecond)
	f.store(SoldOut, 7, 2)
	f.want("bob", Miss)
	f.storeSentAt(f.ms.Load()-5, SoldOut, 7, 1) // decided before the second order, and arrived after it
	f.want("bob", Miss)
}

// Redis has lost orders: the same count stands for other buyers.
func TestBypassListIsDroppedWhenTheCountDecreases(t *testing.T) {
	f := newFixture(t)
	f.setList(5, "ann", "bob")
	f.store(SoldOut, 7, 5)
	f.advance(2 * time.Second)
	f.setList(4, "ann", "cid")
	f.store(SoldOut, 7, 4)
	f.want("cid", Miss)
	f.want("dan", Hit)
	if f.Entries() != 2 {
		t.Errorf("%d entries in memory, want 2", f.Entries())
	}
}

func TestOldBypassListIsFetchedAgainWhileInUse(t *testing.T) {
	f := newFixture(t)
	f.setList(1, "ann")
	f.store(SoldOut, 7, 1)
	f.failFetches()
	f.advance(listAge)
	f.store(SoldOut, 7, 1)
	f.want("dan", Hit)
	if n := f.countFetches(); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

// If Redis loses orders and accepts as many others while no list can be fetched, the count does not reveal it. Only
// the age of the list bounds the error.
func TestBypassListExpires(t *testing.T) {
	f := newFixture(t)
	f.setList(1, "ann")
	f.store(SoldOut, 7, 1)
	f.failFetches()
	for range int(listExpiry / (10 * time.Second)) {
		f.want("dan", Hit)
		f.advance(10 * time.Second)
		f.store(SoldOut, 7, 1)
	}
	f.want("dan", Miss)
	f.setList(1, "cid")
	f.advance(fetchRetry)
	f.store(SoldOut, 7, 1)
	f.want("cid", Miss)
	f.want("dan", Hit)
}

func TestBypassListWithAMillionEntries(t *testing.T) {
	const n = 1_000_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("buyer-", i)
	}
	f := newFixture(t)
	f.setList(n, names...)
	f.store(SoldOut, 7, n)
	if got := f.Entries(); got < n*999/1000 || got > n {
		t.Fatalf("%d entries for %d names", got, n)
	}
	for i := 0; i < n; i += 997 {
		f.want(names[i], Miss)
	}
	others := 0
	for i := range 10_000 {
		if _, v := f.lookup(fmt.Sprint("other-", i)); v == Hit {
			others++
		}
	}
	if others < 9_950 { // about 1 of 4295 names collides with one of the list
		t.Errorf("%d hits of 10000 names that are not on the list", others)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	var body []byte
	for i := range maxSaleEntries {
		body = binary.BigEndian.AppendUint32(body, uint32(i))
	}
	f.body = body
	for i := range maxEntries/maxSaleEntries + 2 {
		id := fmt.Sprint("drop-", i)
		f.header = fmt.Sprintf("%s;accepted=1;count=%d", id, maxSaleEntries)
		f.Store(f.ms.Load(), f.ms.Load(), id, SaleHint{State: SoldOut, TTL: time.Second, Holders: 1}, Response{})
		f.fetches.Wait()
	}
	if f.Entries() != maxEntries {
		t.Errorf("%d entries in memory, want %d", f.Entries(), maxEntries)
	}
	for i := range 2 * maxSales {
		f.Store(f.ms.Load(), f.ms.Load(), fmt.Sprint("many-", i), SaleHint{State: Closed, TTL: time.Second}, Response{})
		f.OrderAccepted(f.ms.Load(), fmt.Append(nil, "sold-", i))
	}
	if n := len(*f.sales.Load()); n != maxSales {
		t.Errorf("%d sales in memory, want %d", n, maxSales)
	}
	f.Evict(f.ms.Load() + saleExpiry.Milliseconds() - 1)
	if n := len(*f.sales.Load()); n != maxSales {
		t.Errorf("%d sales before their expiry, want %d", n, maxSales)
	}
	f.Evict(f.ms.Load() + saleExpiry.Milliseconds())
	if n := len(*f.sales.Load()); n != 0 || f.Entries() != 0 {
		t.Errorf("%d sales and %d entries after their expiry, want none", n, f.Entries())
	}
}

func TestRetryAfterDecreasesByOneSecondAtMost(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	r := newRecord(0, SaleHint{State: Scheduled, TTL: time.Second, Opens: at.Add(90_500 * time.Millisecond).UnixMilli()},
		Response{RetryAfter: 91})
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{
		{0, 91}, {400 * time.Millisecond, 91}, {500 * time.Millisecond, 90}, {999 * time.Millisecond, 90},
		{time.Hour, 90}, {-time.Hour, 91},
	} {
		if got := r.RetryAfterAt(at.Add(c.after)); got != c.want {
			t.Errorf("after %v: %d s, want %d", c.after, got, c.want)
		}
	}
	if got := newRecord(0, SaleHint{State: SoldOut, TTL: time.Second}, Response{}).RetryAfterAt(at); got != 0 {
		t.Errorf("sold out: %d s, want none", got)
	}
	if got := newRecord(0, SaleHint{State: Scheduled, TTL: time.Second, Opens: at.UnixMilli()},
		Response{RetryAfter: 1}).RetryAfterAt(at); got != 1 {
		t.Errorf("at the opening: %d s, want 1", got)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{0, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("buyer-", i)
			}
			f := newFixture(b)
			f.setList(n, names...)
			f.store(SoldOut, 7, int64(n))
			token, id := bearer(plainHeader, `{"sub":"`+strings.Repeat("x", 20)+`","exp":9999999999,"iat":1800000000}`), []byte(
				"drop",
			)
			var scratch []byte
			now := f.ms.Load()
			b.ReportAllocs()
			for b.Loop() {
				var v Result
				if _, v, scratch = f.Lookup(now, id, token, scratch); v != Hit {
					b.Fatal(v)
				}
			}
		})
	}
}
