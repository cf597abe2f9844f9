package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

var began = time.Now() // fixed, so that message(1) is the same order throughout a test

func message(n int) queue.Message {
	return queue.Message{
		ID:     sale.NewOrderID(began, uint32(n)),
		SaleID: "drop",
		Slot:   1,
		Serial: int64(n),
		Buyer:  "bob",
		Status: sale.StatusQueued,
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

func take(t testing.TB, l *queue.List, limit int) queue.Batch {
	t.Helper()
	b, lost, err := queuetest.Take(t.Context(), l, limit, "")
	if err != nil || lost {
		t.Fatalf("take: lost=%v, %v", lost, err)
	}
	return b
}

func registered(t testing.TB, l *queue.List) queue.Consumer {
	t.Helper()
	consumer, err := l.Register(t.Context(), queue.NewConsumerName())
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

func deadLetter(t testing.TB, l *queue.List, m ...queue.Message) {
	t.Helper()
	if err := l.Push(t.Context(), m...); err != nil {
		t.Fatal(err)
	}
	var f []queue.Failure
	for _, x := range m {
		f = append(f, queue.Failure{ID: x.ID, Reason: "no", Permanent: true})
	}
	if lost, err := l.Ack(t.Context(), take(t, l, len(m)).ID, f...); err != nil || lost {
		t.Fatalf("ack: lost=%v, %v", lost, err)
	}
}

func TestCancelReturnsUnitAndSlotOnce(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	ctx := t.Context()
	id := message(1).ID.String()
	for i, c := range []struct {
		name, stock, buyers   string
		giveBack              bool
		wantStock, wantBuyers string
	}{
		{"only order of the buyer", "5", id, true, "6", ""},
		{"one of several slots", "0", "111," + id + ",333", true, "1", "111,,333"},
		{"last held slot", "0", "," + id + ",", true, "1", ""},
		{
			"an id that contains this one is another order", "0", "1" + id + "," + id + "0", true, "0",
			"1" + id + "," + id + "0",
		},
		{"a slot that was released", "0", ",", true, "0", ","},
		{"no slot, as of a message added by hand", "7", "", true, "7", ""},
		{"not requested", "5", id, false, "5", id},
		{"sale not loaded", "", "", true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			shard := keyspace.Shard(i)
			l := queue.NewList(client, shard, queue.Config{})
			m := message(1)
			parsed, _ := sale.ParseOrderID(id)
			m.ID = parsed
			deadLetter(t, l, m)
			if c.stock != "" {
				client.Set(ctx, shard.Stock("drop"), c.stock, 0)
			}
			if c.buyers != "" {
				client.HSet(ctx, shard.Buyers("drop"), "bob", c.buyers, "eve", id)
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
			if got := client.Get(ctx, shard.Stock("drop")).Val(); got != c.wantStock {
				t.Errorf("stock is %q, want %q", got, c.wantStock)
			}
			if got := client.HGet(ctx, shard.Buyers("drop"), "bob").Val(); got != c.wantBuyers {
				t.Errorf("bob's slots are %q, want %q", got, c.wantBuyers)
			}
			if c.buyers != "" && !client.HExists(ctx, shard.Buyers("drop"), "bob").Val() {
				t.Error("bob is missing from the buyers: an edge would reject bob's repeated request")
			}
			if c.buyers != "" && client.HGet(ctx, shard.Buyers("drop"), "eve").Val() != id {
				t.Error("another buyer's slot has changed")
			}
		})
	}
}

func TestDropRawRemovesInvalidTextsOnly(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{})
	deadLetter(t, l, message(1))
	client.LPush(t.Context(), keyspace.Shard(0).Ready(), "invalid")
	take(t, l, 1)
	page, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{})
	if err != nil || len(page) != 2 {
		t.Fatalf("dead letters: %v, %v", page, err)
	}
	for _, d := range slices.Concat(page, page) { // twice
		err := l.DropRaw(t.Context(), d.Key)
		if d.Raw != nil && err != nil || d.Raw == nil && !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("drop %s: %v", d.Key, err)
		}
	}
	if page, _, err = l.DeadLetters(t.Context(), queue.DeadQuery{}); err != nil || len(page) != 1 || page[0].Raw != nil {
		t.Errorf("left: %+v, %v; want the message", page, err)
	}
}

// Ten megabytes that are not a message (one with -short) are kept unchanged, and the orders around them are taken.
func TestHugeTextBecomesADeadLetterWithItsBytes(t *testing.T) {
	size := 10 << 20
	if testing.Short() {
		size = 1 << 20
	}
	onEachRedis(t, func(t *testing.T, e engine) {
		shard := keyspace.Shard(0)
		l := queue.NewList(e.client, shard, queue.Config{CallTimeout: time.Minute})
		huge := strings.Repeat("\xfe12 \x00", size/5)
		first, last := message(1), message(2)
		if err := l.Push(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := e.client.LPush(t.Context(), shard.Ready(), huge).Err(); err != nil {
			t.Fatal(err)
		}
		if err := l.Push(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		b := take(t, l, 10)
		if !slices.Equal(b.Messages, []queue.Message{first, last}) {
			t.Errorf("took %d other messages", len(b.Messages))
		}
		page, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{})
		if err != nil || len(page) != 1 || string(page[0].Raw) != huge {
			t.Fatalf("%d letters, %v", len(page), err)
		}
		if err := l.DropRaw(t.Context(), page[0].Key); err != nil {
			t.Error(err)
		}
	})
}

func TestUnreadableDeadLetterIsListed(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(0)
	client.ZAdd(t.Context(), shard.Dead().Times(), redis.Z{Score: 1, Member: "12"})
	client.HSet(t.Context(), shard.Dead().Letters(), "12", "{broken")
	page, _, err := queue.NewList(client, shard, queue.Config{}).DeadLetters(t.Context(), queue.DeadQuery{})
	if err != nil || len(page) != 1 || string(page[0].Raw) != "{broken" || page[0].Key != "12" {
		t.Fatalf("dead letters: %+v, %v", page, err)
	}
}

// putDead stores n dead letters of a sale in shard 0, so many of which died in each millisecond.
func putDead(t *testing.T, client redisconn.Client, saleID string, n, perMillisecond int) {
	t.Helper()
	dead := keyspace.Shard(0).Dead()
	p := client.Pipeline()
	for i := range n {
		id := message(i + 1).ID.String()
		p.ZAdd(t.Context(), dead.Times(), redis.Z{Score: float64(i / perMillisecond), Member: id})
		p.HSet(t.Context(), dead.Letters(), id, `{"state":"dead","message":"`+id+` `+saleID+` 1 1 bob"}`)
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestListingReadsABoundedNumberOfDeadLetters(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(0)
	const others = 10_100
	putDead(t, client, "other", others, 3)
	l := queue.NewList(client, shard, queue.Config{CallTimeout: time.Minute})
	m := message(others + 1)
	deadLetter(t, l, m)
	page, next, err := l.DeadLetters(t.Context(), queue.DeadQuery{SaleID: "drop"})
	if err != nil || len(page) != 0 || next == "" {
		t.Fatalf("the first page holds %d letters, next is %q, %v", len(page), next, err)
	}
	page, next, err = l.DeadLetters(t.Context(), queue.DeadQuery{SaleID: "drop", After: next})
	if err != nil || len(page) != 1 || page[0].Message != m || next != "" {
		t.Fatalf("the second page holds %v, next is %q, %v", page, next, err)
	}
}

// once calls do after the first command with a name.
type once struct {
	name string
	do   func()
}

func (o *once) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if do := o.do; do != nil && cmd.Name() == o.name {
		o.do = nil
		do()
	}
	return err
}

func TestListingSkipsNoDeadLetterWhileOthersAreRemoved(t *testing.T) {
	r := testenv.StartRedis(t)
	client := r.Client()
	shard := keyspace.Shard(0)
	const others = 200 // as many as one command reads
	for _, perMillisecond := range []int{1, 7, others} {
		client.FlushAll(t.Context())
		putDead(t, client, "other", others, perMillisecond)
		var removed []any
		for i := 30; i <= others; i += 30 {
			removed = append(removed, message(i).ID.String())
		}
		m := message(others + 1)
		deadLetter(t, queue.NewList(client, shard, queue.Config{}), m)
		hooked := testenv.NewClient(redisconn.Addr(client))
		t.Cleanup(func() { _ = hooked.Close() })
		remove := once{"hmget", func() { client.ZRem(t.Context(), shard.Dead().Times(), removed...) }}
		hooked.AddHook(testenv.Commands(remove.process))
		l := queue.NewList(hooked, shard, queue.Config{})
		page, next, err := l.DeadLetters(t.Context(), queue.DeadQuery{SaleID: "drop"})
		if err != nil || len(page) != 1 || page[0].Message != m || next != "" {
			t.Errorf("%d in a millisecond: %+v, next is %q, %v", perMillisecond, page, next, err)
		}
	}
}

// One command reads 200 dead letters at first, fewer than died in the millisecond.
func TestListingPagesThroughOneMillisecond(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(0)
	const letters = 1000
	putDead(t, client, "drop", letters, letters)
	l := queue.NewList(client, shard, queue.Config{CallTimeout: time.Minute})
	found := map[string]bool{}
	for q := (queue.DeadQuery{Limit: 100}); ; {
		page, next, err := l.DeadLetters(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page {
			if found[d.Key] {
				t.Fatalf("%s is on two pages", d.Key)
			}
			found[d.Key] = true
		}
		if q.After = next; next == "" {
			break
		}
	}
	if len(found) != letters {
		t.Errorf("%d letters, want %d", len(found), letters)
	}
}

func TestLeaseExpiresByTheServersClock(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{Lease: 30 * time.Millisecond})
	want := push(t, l, 3)
	take(t, l, 3)
	testenv.Eventually(t, time.Minute, "the lease has expired and an idle take returns the messages", func() bool {
		return slices.Equal(take(t, l, 3).Messages, want)
	})
}

func TestBatchWithoutALeaseIsNeverAddedTo(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{})
	want := push(t, l, 1)
	text, list := registered(t, l).BatchID(1), registered(t, l).BatchID(1)
	client.Set(t.Context(), keyspace.Shard(0).Batch(text), "no list", 0)
	client.RPush(t.Context(), keyspace.Shard(0).Batch(list), keyspace.EncodeMessage(message(2)))
	for _, id := range []string{text, list} {
		if b, _, err := l.TakeAs(t.Context(), id, 1, ""); err == nil {
			t.Errorf("took %v as batch %s, which exists", b, id)
		}
	}
	if got := take(t, l, 1).Messages; !slices.Equal(got, want) {
		t.Errorf("after that, take returns %v", got)
	}
}

func crash(t *testing.T, client redisconn.Client, l *queue.List, shard keyspace.Shard) {
	t.Helper()
	for _, id := range client.ZRange(t.Context(), shard.Leases(), 0, -1).Val() {
		client.ZAdd(t.Context(), shard.Leases(), redis.Z{Score: 1, Member: id})
	}
	if n, err := l.Reclaim(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("reclaimed %d leases, %v", n, err)
	}
}

// A message becomes a dead letter only if it was leased alone, whatever limits other processes have.
// A batch with a key of the wrong type does not stop the reclaim of those that expired after it.
func TestReclaimContinuesAfterABrokenBatch(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(0)
	l := queue.NewList(client, shard, queue.Config{})
	push(t, l, 2)
	var batches []string
	for range 2 {
		b, _, err := queuetest.Take(t.Context(), l, 1, "")
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b.ID)
	}
	client.Del(t.Context(), shard.Batch(batches[0]))
	client.Set(t.Context(), shard.Batch(batches[0]), "a string", 0)
	for i, id := range batches {
		client.ZAdd(t.Context(), shard.Leases(), redis.Z{Score: float64(1 + i), Member: id}) // expired
	}
	if n, err := l.Reclaim(t.Context(), 10); n != 1 || err == nil || errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("reclaimed %d leases, %v; want one, and the error of the other", n, err)
	}
	if b, _, err := queuetest.Take(t.Context(), l, 10, ""); err != nil || len(b.Messages) != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestWatcherWithALowerLimitDeadLettersOnlyTheCrasher(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	lax, strict := queue.NewList(client, 0, queue.Config{MaxCrashes: 9}), queue.NewList(client, 0,
		queue.Config{MaxCrashes: 1})
	push(t, lax, 2)
	for range 5 {
		if b := take(t, lax, 2); len(b.Messages) != 2 {
			t.Fatalf("took %v", b)
		}
		crash(t, client, strict, 0)
	}
}

func TestInvalidTextInAnExpiredBatchIsRequeued(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(0)
	l := queue.NewList(client, shard, queue.Config{MaxCrashes: 1})
	for range 3 { // a worker crashed between take and dead_letter
		client.RPush(t.Context(), shard.Batch("held"), "invalid")
		client.ZAdd(t.Context(), shard.Leases(), redis.Z{Score: 1, Member: "held"})
		crash(t, client, l, shard)
		if got := client.RPop(t.Context(), shard.Ready()).Val(); got != "invalid" {
			t.Fatalf("ready holds %q", got)
		}
	}
}

func TestCancelledCrasherLeavesNoKeys(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0, queue.Config{MaxCrashes: 1})
	m := push(t, l, 1)[0]
	for range 2 {
		take(t, l, 1)
		crash(t, client, l, 0)
	}
	if _, err := l.BeginCancel(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if err := l.FinishCancel(t.Context(), m.ID, true); err != nil {
		t.Fatal(err)
	}
	client.Del(t.Context(), keyspace.Shard(0).Wake(), keyspace.Shard(0).Consumers())
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("these keys are left: %v", keys)
	}
}

func TestDrainedQueueLeavesNoKeys(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	l := queue.NewList(client, 0,
		queue.Config{Lease: time.Millisecond, MaxCrashes: 1, BackoffBase: time.Millisecond, MaxAttempts: 100})
	push(t, l, 40)
	for i := range 10 { // crash, fail, release
		b := take(t, l, 7)
		switch {
		case len(b.Messages) == 0:
		case i%3 == 1:
			_, _ = l.Ack(t.Context(), b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no"})
		case i%3 == 2:
			_, _ = l.Release(t.Context(), b.ID)
		}
	}
	testenv.Eventually(t, time.Minute, "the queue was drained", func() bool {
		if b := take(t, l, 7); len(b.Messages) > 0 {
			_, _ = l.Ack(t.Context(), b.ID)
		}
		page, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{})
		for _, d := range page { // leases of 1 ms may expire too often
			_, _ = l.BeginCancel(t.Context(), d.Message.ID)
			_ = l.FinishCancel(t.Context(), d.Message.ID, false)
		}
		s, statsErr := l.Stats(t.Context())
		return err == nil && statsErr == nil && s == queue.Stats{}
	})
	client.Del(t.Context(), keyspace.Shard(0).Wake(), keyspace.Shard(0).Consumers())
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("these keys are left: %v", keys)
	}
}
