package redisconn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// A holder that was paused past its time must not keep the next one's lock for itself, or take it away.
func TestLockOfAnotherIsLeftAlone(t *testing.T) {
	mini := miniredis.RunT(t)
	client, err := redisconn.Open("redis://" + mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const key, lasts = "lock", 300 * time.Millisecond
	first, err := redisconn.Acquire(t.Context(), client, key, lasts)
	if err != nil || first == nil {
		t.Fatalf("the first: %v, %v", first, err)
	}
	if l, err := redisconn.Acquire(t.Context(), client, key, time.Minute); l != nil || err != nil {
		t.Fatalf("held, and given again: %v, %v", l, err)
	}
	mini.FastForward(2 * lasts) // keys expire by this alone
	if second, err := redisconn.Acquire(t.Context(), client, key, time.Minute); err != nil || second == nil {
		t.Fatalf("run out, and not given: %v, %v", second, err)
	}
	token, err := mini.Get(key)
	if err != nil {
		t.Fatal(err)
	}

	held, release := first.KeepRenewed(t.Context())
	select {
	case <-held.Done():
	case <-time.After(20 * time.Second):
		t.Error("the first was not told that it has lost the lock")
	}
	release()
	if got, err := mini.Get(key); got != token || mini.TTL(key) != time.Minute {
		t.Errorf("the second's lock is %q for %v, %v", got, mini.TTL(key), err)
	}
}

func TestLockIsKeptAndGivenBack(t *testing.T) {
	mini := miniredis.RunT(t)
	client, err := redisconn.Open("redis://" + mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const key, lasts = "lock", time.Second
	lock, err := redisconn.Acquire(t.Context(), client, key, lasts)
	if err != nil || lock == nil {
		t.Fatalf("%v, %v", lock, err)
	}
	mini.FastForward(lasts / 2)
	held, release := lock.KeepRenewed(t.Context())
	testenv.Eventually(t, 20*time.Second, "the lock is renewed", func() bool { return mini.TTL(key) == lasts })
	if held.Err() != nil {
		t.Errorf("renewed, and given up: %v", held.Err())
	}
	release()
	if mini.Exists(key) {
		t.Error("not given back")
	}
}

// A Redis that stood still lets a lock run out whose owner lives: if nobody has taken it since, nothing has happened.
func TestLockThatRanOutIsTakenAgain(t *testing.T) {
	mini := miniredis.RunT(t)
	client, err := redisconn.Open("redis://" + mini.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const key, lasts = "lock", 300 * time.Millisecond
	lock, err := redisconn.Acquire(t.Context(), client, key, lasts)
	if err != nil || lock == nil {
		t.Fatalf("%v, %v", lock, err)
	}
	token, _ := mini.Get(key)
	mini.FastForward(2 * lasts)
	held, release := lock.KeepRenewed(t.Context())
	testenv.Eventually(t, 20*time.Second, "the lock is its owner's again", func() bool { got, _ := mini.Get(key); return got == token && mini.TTL(key) == lasts })
	if held.Err() != nil {
		t.Errorf("taken again, and given up: %v", held.Err())
	}
	release()
	if mini.Exists(key) {
		t.Error("not given back")
	}
}

// twice sends every command twice, as a client does that has lost an answer; blind loses the answer of the second, too.
type twice struct{ blind bool }

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = next(ctx, cmd)
		err := next(ctx, cmd)
		if h.blind && cmd.Args()[len(cmd.Args())-1] != 0 {
			err = errors.New("the answer is lost")
			cmd.SetErr(err)
		}
		return err
	}
}

func TestLockIsNotLostWithAnAnswer(t *testing.T) {
	mini := miniredis.RunT(t)
	open := func(h twice) *redis.Client {
		c, err := redisconn.Open("redis://" + mini.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		c.AddHook(h)
		return c
	}
	if l, err := redisconn.Acquire(t.Context(), open(twice{blind: true}), "lock", time.Minute); l != nil || err == nil || mini.Exists("lock") {
		t.Errorf("nobody knows that he has it, and others wait: %v, %v", l, err)
	}
	if l, err := redisconn.Acquire(t.Context(), open(twice{}), "lock", time.Minute); l == nil || err != nil {
		t.Errorf("asked for twice, and not given: %v, %v", l, err)
	}
}
