package events_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// commandCounts counts the commands of a client by name.
type commandCounts struct {
	mu     sync.Mutex
	byName map[string]int
}

func (c *commandCounts) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	c.mu.Lock()
	c.byName[cmd.Name()]++
	c.mu.Unlock()
	return next(ctx, cmd)
}

// read returns the counts and resets them.
func (c *commandCounts) read() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.byName
	c.byName = map[string]int{}
	return counts
}

// inBubble runs a test with a fake clock, an embedded Redis and a client that counts its commands.
func inBubble(t *testing.T, test func(t *testing.T, client redisconn.Client, counts *commandCounts)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		client, err := redisconn.Open("redis://embedded/0", redisconn.Dial(m.Dial))
		if err != nil {
			t.Fatal(err)
		}
		counts := &commandCounts{byName: map[string]int{}}
		client.AddHook(testenv.Commands(counts.process))
		test(t, client, counts)
		_ = client.Close()
		m.Close()
	})
}

// noEvents is a database with one group and without events.
type noEvents struct {
	mu    sync.Mutex
	looks int // for changes
}

func (s *noEvents) Changes(context.Context, int64, int) ([]events.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return nil, nil
}

// looked returns the number of looks since the last call.
func (s *noEvents) looked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, s.looks = s.looks, 0
	return n
}

func (s *noEvents) DeleteChanges(context.Context, int64) error { return nil }

func (s *noEvents) DropChanges(context.Context, int, func(context.Context) (bool, error)) error {
	return nil
}

func (s *noEvents) Groups(context.Context) ([]events.Group, error) {
	return []events.Group{{Name: "g"}}, nil
}

func (s *noEvents) AddGroup(context.Context, string, bool) (events.Group, error) {
	return events.Group{Name: "g"}, nil
}

func (s *noEvents) Group(context.Context, string) (events.Group, error) {
	return events.Group{Name: "g"}, nil
}

func (s *noEvents) AddDeadLetter(context.Context, events.DeadLetter) error { return nil }

func (s *noEvents) RemoveDeadLetter(context.Context, string, string) error { return nil }

func (s *noEvents) LeaseRetry(context.Context, string, time.Duration) (*events.DeadLetter, error) {
	return nil, nil
}

func (s *noEvents) FailRetry(context.Context, events.DeadLetter) error { return nil }

func (s *noEvents) ReleaseRetry(context.Context, events.DeadLetter) error { return nil }

// An idle relay looks for changes every Poll and runs a script once in ten of them.
func TestIdleRelayRunsFewScripts(t *testing.T) {
	inBubble(t, func(t *testing.T, client redisconn.Client, counts *commandCounts) {
		db := &noEvents{}
		relay := events.NewRelay(client, space, db, events.RelayConfig{Poll: time.Second, Turn: time.Hour, Log: quiet})
		ctx, stop := t.Context(), testenv.Run(t, relay.Run)
		time.Sleep(10 * time.Second) // it settles
		synctest.Wait()
		counts.read()
		db.looked()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		idle, looks := counts.read(), db.looked()
		if idle["evalsha"] != 10 || looks != 100 {
			t.Errorf("in 100 seconds: %d looks for changes, commands %v", looks, idle)
		}
		client.FlushAll(ctx) // Redis loses the group
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(client.XInfoGroups(ctx, space.Events()).Val()); n != 1 {
			t.Errorf("%d groups after Redis was emptied", n)
		}
		stop()
	})
}

// An idle consumer waits in one call and runs a script once a minute.
func TestIdleConsumerWaitsInOneCall(t *testing.T) {
	inBubble(t, func(t *testing.T, client redisconn.Client, counts *commandCounts) {
		handle := newSink().Handle
		consumer, err := events.New(client, space, &noEvents{}, "g", handle, events.Config{Concurrency: 3, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		stop := testenv.Run(t, consumer.Run)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counts.read()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if idle := counts.read(); idle["xreadgroup"] != 600 || idle["evalsha"] != 10 || idle["xpending"] != 240 {
			t.Errorf("in 10 minutes: commands %v", idle)
		}
		stop()
	})
}
