package queue_test

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/internal/testenv"
)

func message(n int) queue.Message {
	return queue.Message{
		ID: sale.NewOrderID(time.Now(), uint32(n)), SaleID: "drop", Nth: 1, Serial: int64(n), Buyer: "bob", Status: sale.StatusQueued,
	}
}

func push(t testing.TB, l *queue.List, n int) []queue.Message {
	t.Helper()
	var m []queue.Message
	for i := 1; i <= n; i++ {
		m = append(m, message(i))
	}
	if err := l.Push(t.Context(), m...); err != nil {
		t.Fatal(err)
	}
	return m
}

func take(t testing.TB, l *queue.List, limit int, ack string) queue.Batch {
	t.Helper()
	b, lost, err := l.Take(t.Context(), limit, ack)
	if err != nil || lost {
		t.Fatalf("take: lost=%v, %v", lost, err)
	}
	return b
}

func bury(t testing.TB, l *queue.List, m ...queue.Message) {
	t.Helper()
	if err := l.Push(t.Context(), m...); err != nil {
		t.Fatal(err)
	}
	var f []queue.Failure
	for _, x := range m {
		f = append(f, queue.Failure{ID: x.ID, Reason: "no", Permanent: true})
	}
	if lost, err := l.Ack(t.Context(), take(t, l, len(m), "").ID, f...); err != nil || lost {
		t.Fatalf("ack: lost=%v, %v", lost, err)
	}
}

func TestCancelGivesUnitAndPlaceBackOnce(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	ctx := t.Context()
	id := message(1).ID.String()
	for i, c := range []struct {
		name, stock, buyers   string
		giveBack              bool
		wantStock, wantBuyers string
	}{
		{"only order of the buyer", "5", id, true, "6", ""},
		{"one of several places", "0", "111," + id + ",333", true, "1", "111,,333"},
		{"last held place", "0", "," + id + ",", true, "1", ""},
		{"an id that contains this one is another order", "0", "1" + id + "," + id + "0", true, "1", "1" + id + "," + id + "0"},
		{"no place held", "7", "", true, "8", ""},
		{"not asked to", "5", id, false, "5", id},
		{"sale not loaded", "", "", true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			lane := keyspace.Lane(i)
			l := queue.NewList(client, lane, queue.Config{})
			m := message(1)
			parsed, _ := sale.ParseOrderID(id)
			m.ID = parsed
			bury(t, l, m)
			if c.stock != "" {
				client.Set(ctx, lane.Stock("drop"), c.stock, 0)
			}
			if c.buyers != "" {
				client.HSet(ctx, lane.Buyers("drop"), "bob", c.buyers, "eve", id)
			}
			if _, err := l.BeginCancel(ctx, m.ID); err != nil {
				t.Fatal(err)
			}
			if err := l.FinishCancel(ctx, m.ID, c.giveBack); err != nil {
				t.Fatal(err)
			}
			if err := l.FinishCancel(ctx, m.ID, c.giveBack); !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("second finish: %v", err)
			}
			if got := client.Get(ctx, lane.Stock("drop")).Val(); got != c.wantStock {
				t.Errorf("stock is %q, want %q", got, c.wantStock)
			}
			if got := client.HGet(ctx, lane.Buyers("drop"), "bob").Val(); got != c.wantBuyers {
				t.Errorf("bob's places are %q, want %q", got, c.wantBuyers)
			}
			if c.buyers != "" && client.HGet(ctx, lane.Buyers("drop"), "eve").Val() != id {
				t.Error("another buyer's place was touched")
			}
		})
	}
}

func TestDropRawRemovesRubbishOnly(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{})
	bury(t, l, message(1))
	client.LPush(t.Context(), keyspace.Lane(0).Ready(), "rubbish")
	take(t, l, 1, "")
	page, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{})
	if err != nil || len(page) != 2 {
		t.Fatalf("dead letters: %v, %v", page, err)
	}
	for _, d := range page {
		err := l.DropRaw(t.Context(), d.Key)
		if rubbish := d.Raw != nil; rubbish != (err == nil) {
			t.Errorf("drop %s: %v", d.Key, err)
		}
		if err := l.DropRaw(t.Context(), d.Key); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("drop %s again: %v", d.Key, err)
		}
	}
}

func TestUnreadableLetterIsStillSeen(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	lane := keyspace.Lane(0)
	client.ZAdd(t.Context(), lane.Dead(), redis.Z{Score: 1, Member: "12"})
	client.HSet(t.Context(), lane.DeadLetters(), "12", "{broken")
	page, _, err := queue.NewList(client, lane, queue.Config{}).DeadLetters(t.Context(), queue.DeadQuery{})
	if err != nil || len(page) != 1 || string(page[0].Raw) != "{broken" || page[0].Key != "12" {
		t.Fatalf("dead letters: %+v, %v", page, err)
	}
}

func TestLeaseRunsOutByTheServersClock(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{Lease: 30 * time.Millisecond})
	want := push(t, l, 3)
	take(t, l, 3, "")
	testenv.Eventually(t, 5*time.Second, "the lease ran out and an idle take got the messages again", func() bool {
		return slices.Equal(take(t, l, 3, "").Messages, want)
	})
}

func TestNothingIsLeftBehindWhenAllIsDone(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{Lease: time.Millisecond, MaxCrashes: 1, BackoffBase: time.Millisecond, MaxAttempts: 100})
	push(t, l, 40)
	for i := range 10 { // crash, fail, release
		b := take(t, l, 7, "")
		switch {
		case len(b.Messages) == 0:
		case i%3 == 1:
			_, _ = l.Ack(t.Context(), b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no"})
		case i%3 == 2:
			_, _ = l.Release(t.Context(), b.ID)
		}
	}
	testenv.Eventually(t, 10*time.Second, "the queue was drained", func() bool {
		if b := take(t, l, 7, ""); len(b.Messages) > 0 {
			_, _ = l.Ack(t.Context(), b.ID)
		}
		page, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{})
		for _, d := range page { // a lease of 1 ms kills now and then
			_, _ = l.BeginCancel(t.Context(), d.Message.ID)
			_ = l.FinishCancel(t.Context(), d.Message.ID, false)
		}
		s, statsErr := l.Stats(t.Context())
		return err == nil && statsErr == nil && s == queue.Stats{}
	})
	client.Del(t.Context(), keyspace.Lane(0).Wake())
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("these keys are left: %v", keys)
	}
}

// operations is every call that writes, by name; each takes care of what it needs in a lane that prepare has filled.
func operations(l *queue.List, batch string) map[string]func(t *testing.T) error {
	fail := []queue.Failure{{ID: message(1).ID, Reason: "no"}, {ID: message(2).ID, Reason: "no", Permanent: true}}
	return map[string]func(t *testing.T) error{
		"push":     func(t *testing.T) error { return l.Push(t.Context(), message(90)) },
		"take":     func(t *testing.T) error { _, _, err := l.Take(t.Context(), 5, ""); return err },
		"take+ack": func(t *testing.T) error { _, _, err := l.Take(t.Context(), 5, batch); return err },
		"replay":   func(t *testing.T) error { _, _, err := l.TakeAs(t.Context(), batch, 5, ""); return err },
		"ack":      func(t *testing.T) error { _, err := l.Ack(t.Context(), batch); return err },
		"fail":     func(t *testing.T) error { _, err := l.Ack(t.Context(), batch, fail...); return err },
		"release":  func(t *testing.T) error { _, err := l.Release(t.Context(), batch); return err },
		"extend":   func(t *testing.T) error { _, err := l.Extend(t.Context(), batch); return err },
		"reclaim":  func(t *testing.T) error { _, err := l.Reclaim(t.Context(), 5); return err },
		"promote":  func(t *testing.T) error { _, err := l.Reclaim(t.Context(), 5); return err },
		"retry":    func(t *testing.T) error { return l.RetryDead(t.Context(), message(50).ID) },
		"begin":    func(t *testing.T) error { _, err := l.BeginCancel(t.Context(), message(50).ID); return err },
		"finish":   func(t *testing.T) error { return l.FinishCancel(t.Context(), message(51).ID, true) },
	}
}

// TestScriptsThatFailChangeNothing gives one key after the other a wrong type: a script that has begun to write when it finds
// out would lose messages, because Redis does not roll back.
func TestScriptsThatFailChangeNothing(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	ctx := t.Context()
	lane := keyspace.Lane(7)
	cfg := queue.Config{Lease: time.Millisecond, MaxCrashes: 1, BackoffBase: time.Millisecond}
	rest := []string{
		lane.Ready(), lane.Delayed(), lane.Leases(), lane.Wake(), lane.Attempts(), lane.Crashes(), lane.Dead(), lane.DeadLetters(),
		lane.Stock("drop"), lane.Buyers("drop"), lane.Batch("held"),
	}
	failed := 0
	for name := range operations(nil, "") {
		for _, key := range rest {
			if name == "promote" && key == lane.Leases() {
				continue // the step after it fails, and rightly leaves the promotion as it is
			}
			client.FlushAll(ctx)
			l := queue.NewList(client, lane, cfg)
			prepare(t, client, l, lane)
			switch name { // one step of the two
			case "reclaim":
				client.ZAdd(ctx, lane.Delayed(), redis.Z{Score: 1e15, Member: keyspace.EncodeMessage(message(60))})
			case "promote":
				client.Del(ctx, lane.Leases())
			}
			if err := client.Set(ctx, key, "of another type", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := dump(t, client)
			err := operations(l, "held")[name](t)
			if err == nil {
				continue // it does not look at this key
			}
			failed++
			if errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s with a wrong %s: a retry will not help, yet the error is %v", name, key, err)
			}
			if after := dump(t, client); !maps.Equal(before, after) {
				t.Errorf("%s with a wrong %s failed half way: %v", name, key, err)
			}
		}
	}
	if failed < 40 {
		t.Errorf("only %d calls failed: the test no longer tests anything", failed)
	}
}

// prepare fills every key of a lane: a lease that has run out, a delayed message that is due, ready ones, dead ones.
func prepare(t *testing.T, client *redis.Client, l *queue.List, lane keyspace.Lane) {
	t.Helper()
	ctx := t.Context()
	bury(t, l, message(50), message(51))
	if _, err := l.BeginCancel(ctx, message(51).ID); err != nil {
		t.Fatal(err)
	}
	if err := l.Push(ctx, message(60)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ack(ctx, take(t, l, 1, "").ID, queue.Failure{ID: message(60).ID, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	client.ZAdd(ctx, lane.Delayed(), redis.Z{Score: 1, Member: keyspace.EncodeMessage(message(60))})
	client.LPush(ctx, lane.Batch("held"), keyspace.EncodeMessage(message(1)))
	client.RPush(ctx, lane.Batch("held"), keyspace.EncodeMessage(message(2)))
	client.ZAdd(ctx, lane.Leases(), redis.Z{Score: 1, Member: "held"})
	client.HSet(ctx, lane.Crashes(), message(1).ID.String(), "1")
	if err := l.Push(ctx, message(70), message(71)); err != nil {
		t.Fatal(err)
	}
	client.Set(ctx, lane.Stock("drop"), "3", 0)
	client.HSet(ctx, lane.Buyers("drop"), "bob", message(51).ID.String())
	client.Del(ctx, lane.Wake())
}

func dump(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range client.Keys(t.Context(), "*").Val() {
		all[key] = client.Dump(t.Context(), key).Val()
	}
	return all
}

// TestScriptsDeclareEveryKey reads the scripts: the first argument of every command must be a name that comes from KEYS.
func TestScriptsDeclareEveryKey(t *testing.T) {
	scripts := []string{
		"push", "take", "ack", "release", "extend", "expired", "reclaim", "promote", "bury",
		"dead_retry", "dead_begin_cancel", "dead_finish_cancel",
	}
	call := regexp.MustCompile(`redis\.call\('(\w+)'(?:, ([\w.\[\]]+))?`)
	locals := regexp.MustCompile(`(?m)^local ([\w, ]+) = (KEYS\[.*)$`)
	for _, name := range scripts {
		text, err := os.ReadFile("../../lua/redis/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"-- " + name + ": ", "\n-- KEYS 1 ", "\n-- ARGV ", "\n-- Answers "} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s.lua: the header has no %q", name, part)
			}
		}
		declared := map[string]bool{}
		for _, l := range locals.FindAllStringSubmatch(string(text), -1) {
			for _, n := range strings.Split(l[1], ", ") {
				declared[n] = true
			}
		}
		for _, c := range call.FindAllStringSubmatch(string(text), -1) {
			if c[1] != "TIME" && !declared[c[2]] && !strings.HasPrefix(c[2], "KEYS[") {
				t.Errorf("%s.lua: %s of %q, which is not one of its KEYS", name, c[1], c[2])
			}
		}
	}
}
