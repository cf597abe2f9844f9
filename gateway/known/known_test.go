package known

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRefusalIsRepeatedUntilItsTimeIsOver(t *testing.T) {
	for _, state := range States {
		w := newWorld(t)
		w.want("ann", Pass)
		w.refused(state, 7, 0)
		for range 799 {
			if r := w.want("ann", Repeat); r.State != state || string(r.Body) != string(state) {
				t.Fatalf("repeated %s, want %s", r.State, state)
			}
			w.pass(time.Millisecond)
		}
		w.pass(time.Millisecond)
		w.want("ann", Renew) // and does not come back
		for range 200 {
			w.want("bob", Repeat)
			w.pass(time.Millisecond)
		}
		w.want("bob", Pass)
	}
}

func TestTimeCountsFromWhenTheBackendWasAsked(t *testing.T) {
	w := newWorld(t)
	sent := w.ms.Load()
	w.pass(900 * time.Millisecond)
	w.refusedAt(sent, SoldOut, 7, 0)
	w.want("ann", Renew)
	w.want("bob", Repeat)
	w.pass(100 * time.Millisecond)
	w.want("bob", Pass)
	w.refusedAt(sent, SoldOut, 7, 0)
	w.want("bob", Pass)
}

func TestHolderPassesWhileOthersAreTold(t *testing.T) {
	w := newWorld(t)
	w.holds(3, "ann", "bob", "cid")
	w.refused(SoldOut, 7, 3)
	for _, name := range []string{"ann", "bob", "cid"} {
		w.want(name, Pass)
	}
	w.want("dan", Repeat)
	for _, token := range []string{"", "x", "a.b", "a.!.c"} {
		if _, v := w.lookWith([]byte(token)); v != Repeat {
			t.Errorf("token %q: verdict %d, want repeat", token, v)
		}
	}
	for _, claims := range []string{`{"sub":"d\u0061n"}`, `{"sub":"dan","sub":"ann"}`, `{}`} {
		if _, v := w.lookWith(bearer(plainHeader, claims)); v != Pass {
			t.Errorf("claims %s: verdict %d, want pass", claims, v)
		}
	}
}

func TestNothingIsRepeatedBeforeItIsKnownWhoHolds(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.waiting = gate
	w.holds(3, "ann")
	told := Told{State: SoldOut, Version: 7, TTL: time.Second, Holders: 3}
	for range 10 {
		w.Learn(w.ms.Load(), w.ms.Load(), "drop", told, Answer{Status: 409})
		w.want("dan", Pass)
		w.pass(10 * time.Millisecond)
	}
	close(gate)
	if n := w.fetched(); n != 1 {
		t.Errorf("the list was asked for %d times at once, want once", n)
	}
	w.want("dan", Repeat)
	w.want("ann", Pass)
}

func TestListThatIsBehindIsNotUsed(t *testing.T) {
	w := newWorld(t)
	w.holds(2, "ann", "bob") // made before the third
	w.refused(SoldOut, 7, 3)
	w.want("dan", Pass)
	w.pass(499 * time.Millisecond)
	w.refused(SoldOut, 7, 3)
	if n := w.fetched(); n != 1 {
		t.Errorf("asked %d times within half a second, want once", n)
	}
	w.holds(3, "ann", "bob", "cid")
	w.pass(time.Millisecond)
	w.refused(SoldOut, 7, 3)
	w.want("dan", Repeat)
	w.want("cid", Pass)
	if n := w.fetched(); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}

func TestFailedFetchIsTriedAgainHalfASecondLater(t *testing.T) {
	w := newWorld(t)
	w.fails()
	for i := range 20 { // two seconds
		w.refused(SoldOut, 7, 1)
		w.want("dan", Pass)
		if n, want := w.fetched(), 1+i/5; n != want {
			t.Fatalf("after %d ms: asked %d times, want %d", i*100, n, want)
		}
		w.pass(100 * time.Millisecond)
	}
	w.holds(1, "ann")
	w.refused(SoldOut, 7, 1)
	w.want("dan", Repeat)
}

func TestCloseEndsAFetchThatHangs(t *testing.T) {
	w := newWorld(t)
	w.waiting = make(chan struct{})
	w.Learn(w.ms.Load(), w.ms.Load(), "drop", Told{State: SoldOut, TTL: time.Second, Holders: 1}, Answer{})
	closed := make(chan struct{})
	go func() { w.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("Close waits for a backend that does not answer")
	}
	w.Learn(w.ms.Load(), w.ms.Load(), "other", Told{State: SoldOut, TTL: time.Second, Holders: 1}, Answer{})
	if n := w.fetched(); n != 1 {
		t.Errorf("after Close a list was asked for")
	}
}

func TestListThatIsNotOneIsRefused(t *testing.T) {
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
		"beyond bounds": {fmt.Sprintf("drop;accepted=1;count=%d", MaxHolders+1), good},
	} {
		w := newWorld(t)
		w.header, w.body = list.header, []byte(list.body)
		w.refused(SoldOut, 7, 1)
		if w.want("dan", Pass); w.Sums() != 0 {
			t.Errorf("%s: %d sums are kept", what, w.Sums())
		}
	}
}

func TestRestockShowsAtOnceToWhoSeesItAndSoonToAll(t *testing.T) {
	w := newWorld(t)
	w.holds(1, "ann")
	w.refused(SoldOut, 7, 1)
	w.want("dan", Repeat)
	w.pass(800 * time.Millisecond)
	w.want("dan", Renew)
	w.Accepted(w.ms.Load(), []byte("drop"))
	w.want("eve", Pass)
}

func TestRefusalFromBeforeAnAcceptanceIsNotLearned(t *testing.T) {
	w := newWorld(t)
	w.holds(1, "ann")
	sent := w.ms.Load()
	w.pass(5 * time.Millisecond)
	w.Accepted(w.ms.Load(), []byte("drop")) // bob's, after the refusal was made and before it came
	w.pass(5 * time.Millisecond)
	w.refusedAt(sent, SoldOut, 7, 1)
	w.want("bob", Pass)
	w.holds(2, "ann", "bob")
	w.refused(SoldOut, 7, 2)
	w.want("bob", Pass)
	w.want("dan", Repeat)
}

func TestOnlyOneGoesToRenew(t *testing.T) {
	w := newWorld(t)
	w.refused(SoldOut, 7, 0)
	w.pass(850 * time.Millisecond)
	var mu sync.Mutex
	count := map[Verdict]int{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			_, v := w.look(fmt.Sprint("buyer-", i))
			mu.Lock()
			count[v]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if count[Renew] != 1 || count[Repeat] != 63 {
		t.Errorf("%d went to renew and %d were told, want 1 and 63", count[Renew], count[Repeat])
	}
	w.refused(SoldOut, 7, 0)
	w.want("dan", Repeat)
	w.pass(799 * time.Millisecond)
	w.want("dan", Repeat)
	w.pass(time.Millisecond)
	w.want("dan", Renew)
}

func TestTurnIsGivenOnByWhoCameToNothing(t *testing.T) {
	w := newWorld(t)
	w.refused(SoldOut, 7, 0)
	w.pass(900 * time.Millisecond)
	w.want("forger", Renew).Release()
	w.want("dan", Renew)
	w.want("dan", Pass) // the same buyer again, while he may be getting an order
	w.want("eve", Repeat)
	if _, v := w.lookWith(nil); v != Repeat {
		t.Error("a request without a token went to renew: it never gets to the backend")
	}
}

func TestOlderAnswersDoNotReplaceNewerOnes(t *testing.T) {
	w := newWorld(t)
	early := w.ms.Load()
	w.pass(10 * time.Millisecond)
	w.refused(Closed, 8, 0)
	w.refusedAt(early, SoldOut, 7, 0)
	if r := w.want("dan", Repeat); r.State != Closed {
		t.Errorf("told %s, want closed", r.State)
	}
	w.pass(time.Millisecond)
	w.refused(Paused, 9, 0)
	if r := w.want("dan", Repeat); r.State != Paused {
		t.Errorf("told %s, want paused", r.State)
	}
}

func TestMoreHoldersThanTheListHasEndRepeating(t *testing.T) {
	w := newWorld(t)
	w.holds(1, "ann")
	w.refused(SoldOut, 7, 1)
	w.want("bob", Repeat)
	w.fails()
	w.pass(10 * time.Millisecond)
	w.refused(SoldOut, 7, 2)
	w.want("bob", Pass)
	w.refusedAt(w.ms.Load()-5, SoldOut, 7, 1) // decided before the second, and came after
	w.want("bob", Pass)
}

// Redis came back older: the serial that the list is complete up to has been given again, to others.
func TestListOfAnotherPastIsDropped(t *testing.T) {
	w := newWorld(t)
	w.holds(5, "ann", "bob")
	w.refused(SoldOut, 7, 5)
	w.pass(2 * time.Second)
	w.holds(4, "ann", "cid")
	w.refused(SoldOut, 7, 4)
	w.want("cid", Pass)
	w.want("dan", Repeat)
	if w.Sums() != 2 {
		t.Errorf("%d sums are kept, want 2", w.Sums())
	}
}

func TestOldListIsRenewedWhileItIsUsed(t *testing.T) {
	w := newWorld(t)
	w.holds(1, "ann")
	w.refused(SoldOut, 7, 1)
	w.fails()
	w.pass(listAge)
	w.refused(SoldOut, 7, 1)
	w.want("dan", Repeat)
	if n := w.fetched(); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}

// Redis lost who holds, and sold as many again to others, while no list could be fetched: nothing shows that but time.
func TestOldListIsNotUsedForEver(t *testing.T) {
	w := newWorld(t)
	w.holds(1, "ann")
	w.refused(SoldOut, 7, 1)
	w.fails()
	for range int(listEnd / (10 * time.Second)) {
		w.want("dan", Repeat)
		w.pass(10 * time.Second)
		w.refused(SoldOut, 7, 1)
	}
	w.want("dan", Pass)
	w.holds(1, "cid")
	w.pass(fetchRetry)
	w.refused(SoldOut, 7, 1)
	w.want("cid", Pass)
	w.want("dan", Repeat)
}

func TestAMillionHolders(t *testing.T) {
	const n = 1_000_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("buyer-", i)
	}
	w := newWorld(t)
	w.holds(n, names...)
	w.refused(SoldOut, 7, n)
	if got := w.Sums(); got < n*999/1000 || got > n {
		t.Fatalf("%d sums of %d names are kept", got, n)
	}
	for i := 0; i < n; i += 997 {
		w.want(names[i], Pass)
	}
	others := 0
	for i := range 10_000 {
		if _, v := w.look(fmt.Sprint("other-", i)); v == Repeat {
			others++
		}
	}
	if others < 9_950 { // 1 of 4295 has a holder's sum by chance
		t.Errorf("of 10000 who hold nothing %d are told so", others)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	w := newWorld(t)
	var body []byte
	for i := range MaxHolders {
		body = binary.BigEndian.AppendUint32(body, uint32(i))
	}
	w.body = body
	for i := range MaxSums/MaxHolders + 2 {
		id := fmt.Sprint("drop-", i)
		w.header = fmt.Sprintf("%s;accepted=1;count=%d", id, MaxHolders)
		w.Learn(w.ms.Load(), w.ms.Load(), id, Told{State: SoldOut, TTL: time.Second, Holders: 1}, Answer{})
		w.fetches.Wait()
	}
	if w.Sums() != MaxSums {
		t.Errorf("%d sums are kept, want %d", w.Sums(), MaxSums)
	}
	for i := range 2 * MaxSales {
		w.Learn(w.ms.Load(), w.ms.Load(), fmt.Sprint("many-", i), Told{State: Closed, TTL: time.Second}, Answer{})
		w.Accepted(w.ms.Load(), fmt.Append(nil, "sold-", i))
	}
	if n := len(*w.sales.Load()); n != MaxSales {
		t.Errorf("%d sales are remembered, want %d", n, MaxSales)
	}
	w.Sweep(w.ms.Load() + forgetAfter.Milliseconds() - 1)
	if n := len(*w.sales.Load()); n != MaxSales {
		t.Errorf("%d sales are left too early", n)
	}
	w.Sweep(w.ms.Load() + forgetAfter.Milliseconds())
	if n := len(*w.sales.Load()); n != 0 || w.Sums() != 0 {
		t.Errorf("%d sales and %d sums are left when nothing more is heard of them", n, w.Sums())
	}
}

func TestWaitForTheOpeningGoesDownByOneAtMost(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	r := newRecord(0, Told{State: Scheduled, TTL: time.Second, Opens: at.Add(90_500 * time.Millisecond).UnixMilli()}, Answer{RetryAfter: 91})
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{0, 91}, {400 * time.Millisecond, 91}, {500 * time.Millisecond, 90}, {999 * time.Millisecond, 90}, {time.Hour, 90}, {-time.Hour, 91}} {
		if got := r.Wait(at.Add(c.after)); got != c.want {
			t.Errorf("after %v: %d s, want %d", c.after, got, c.want)
		}
	}
	if got := newRecord(0, Told{State: SoldOut, TTL: time.Second}, Answer{}).Wait(at); got != 0 {
		t.Errorf("a sold-out sale says %d s, want none", got)
	}
	if got := newRecord(0, Told{State: Scheduled, TTL: time.Second, Opens: at.UnixMilli()}, Answer{RetryAfter: 1}).Wait(at); got != 1 {
		t.Errorf("at the opening: %d s, want 1", got)
	}
}

// What the lookup costs: once with the name among a million, and once without a list.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{0, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("holders=%d", n), func(b *testing.B) {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("buyer-", i)
			}
			w := newWorld(b)
			w.holds(n, names...)
			w.refused(SoldOut, 7, int64(n))
			token, id := bearer(plainHeader, `{"sub":"`+strings.Repeat("x", 20)+`","exp":9999999999,"iat":1800000000}`), []byte("drop")
			var scratch []byte
			now := w.ms.Load()
			b.ReportAllocs()
			for b.Loop() {
				var v Verdict
				if _, v, scratch = w.Look(now, id, token, scratch); v != Repeat {
					b.Fatal(v)
				}
			}
		})
	}
}
