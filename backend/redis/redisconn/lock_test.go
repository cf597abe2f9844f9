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

func openMini(t *testing.T) (*miniredis.Miniredis, redisconn.Client) {
	t.Helper()
	mini := miniredis.RunT(t)
	return mini, connect(t, "redis://"+mini.Addr())
}

// connect opens a client until the end of the test.
func connect(t *testing.T, url string, options ...redisconn.Option) redisconn.Client {
	t.Helper()
	client, err := redisconn.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// An owner that was suspended past the expiry must neither renew nor release the lock of the next owner.
func TestExpiredOwnerDoesNotTouchTheLockOfAnother(t *testing.T) {
	mini, client := openMini(t)
	const key, duration = "lock", 300 * time.Millisecond
	first, err := redisconn.Acquire(t.Context(), client, key, duration)
	if err != nil || first == nil {
		t.Fatalf("acquire a free lock: %v, %v", first, err)
	}
	if l, err := redisconn.Acquire(t.Context(), client, key, time.Minute); l != nil || err != nil {
		t.Fatalf("acquire a held lock: %v, %v", l, err)
	}
	mini.FastForward(2 * duration) // the clock of miniredis
	if second, err := redisconn.Acquire(t.Context(), client, key, time.Minute); err != nil || second == nil {
		t.Fatalf("acquire an expired lock: %v, %v", second, err)
	}
	token, err := mini.Get(key)
	if err != nil {
		t.Fatal(err)
	}

	held, release := first.KeepRenewed(t.Context())
	select {
	case <-held.Done():
	case <-time.After(time.Minute):
		t.Error("the context of the first owner was not cancelled")
	}
	release()
	if got, err := mini.Get(key); got != token || mini.TTL(key) != time.Minute {
		t.Errorf("the lock of the second owner is %q for %v, %v", got, mini.TTL(key), err)
	}
}

// The owner of a lock crashes, and the clock of Redis is set back: the lock expires after its duration all the same.
func TestLockExpiresAfterTheClockWasSetBack(t *testing.T) {
	mini, client := openMini(t)
	const key, duration = "lock", time.Second
	if first, err := redisconn.Acquire(t.Context(), client, key, duration); err != nil || first == nil {
		t.Fatalf("acquire a free lock: %v, %v", first, err)
	}
	mini.SetTTL(key, time.Hour) // as after the change
	for range 2 {
		if l, err := redisconn.Acquire(t.Context(), client, key, 3*duration); l != nil || err != nil {
			t.Fatalf("acquire a held lock: %v, %v", l, err)
		}
		mini.FastForward(duration / 2)
	}
	if second, err := redisconn.Acquire(t.Context(), client, key, duration); err != nil || second == nil {
		t.Fatalf("acquire an expired lock: %v, %v", second, err)
	}
}

func TestLockIsRenewedAndReleased(t *testing.T) {
	mini, client := openMini(t)
	const key, duration = "lock", time.Second
	lock, err := redisconn.Acquire(t.Context(), client, key, duration)
	if err != nil || lock == nil {
		t.Fatalf("acquire: %v, %v", lock, err)
	}
	mini.FastForward(duration / 2)
	held, release := lock.KeepRenewed(t.Context())
	testenv.Eventually(t, time.Minute, "the lock is renewed", func() bool { return mini.TTL(key) == duration })
	if held.Err() != nil {
		t.Errorf("the lock was renewed, and its context is done: %v", held.Err())
	}
	release()
	if mini.Exists(key) {
		t.Error("release did not delete the lock")
	}
}

// A lock can expire while Redis does not respond. Its owner renews it if no other process has acquired it.
func TestOwnerRenewsItsExpiredLock(t *testing.T) {
	mini, client := openMini(t)
	const key, duration = "lock", 300 * time.Millisecond
	lock, err := redisconn.Acquire(t.Context(), client, key, duration)
	if err != nil || lock == nil {
		t.Fatalf("acquire: %v, %v", lock, err)
	}
	token, _ := mini.Get(key)
	mini.FastForward(2 * duration)
	held, release := lock.KeepRenewed(t.Context())
	testenv.Eventually(t, time.Minute, "the owner has the lock again", func() bool {
		got, _ := mini.Get(key)
		return got == token && mini.TTL(key) == duration
	})
	if held.Err() != nil {
		t.Errorf("the lock was renewed, and its context is done: %v", held.Err())
	}
	release()
	if mini.Exists(key) {
		t.Error("release did not delete the lock")
	}
}

// blind is testenv.Twice without the second reply.
func blind(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := testenv.Twice(ctx, cmd, next)
	if cmd.Args()[len(cmd.Args())-1] != 0 {
		err = errors.New("the reply is lost")
		cmd.SetErr(err)
	}
	return err
}

func TestAcquireSurvivesALostReply(t *testing.T) {
	mini := miniredis.RunT(t)
	open := func(h testenv.Commands) redisconn.Client {
		c := connect(t, "redis://"+mini.Addr())
		c.AddHook(h)
		return c
	}
	l, err := redisconn.Acquire(t.Context(), open(blind), "lock", time.Minute)
	if l != nil || err == nil || mini.Exists("lock") {
		t.Errorf("a failed Acquire left a lock without an owner: %v, %v", l, err)
	}
	if l, err := redisconn.Acquire(t.Context(), open(testenv.Twice), "lock", time.Minute); l == nil || err != nil {
		t.Errorf("the repeated script did not acquire the lock: %v, %v", l, err)
	}
}
