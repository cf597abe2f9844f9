package redisconn

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	redisscript "sluice/lua/redis"
)

// Lock is an expiring lock of one process, to avoid duplicate work. It is not a fence: an owner that is suspended past
// the expiry does not notice that another process holds the lock, and a fence must reject its writes.
type Lock struct {
	client   Client
	key      string
	token    string
	duration time.Duration
}

// Acquire acquires the lock named key for the given duration. It returns nil if another process holds the lock.
func Acquire(ctx context.Context, client Client, key string, duration time.Duration) (*Lock, error) {
	token := fmt.Sprintf("%s-%d", rand.Text(), duration.Milliseconds())
	l := &Lock{client: client, key: key, token: token, duration: duration}
	// The script can be repeated. With SET NX, a lost reply would leave a lock without an owner until it expires.
	n, err := l.renew(ctx, duration)
	if err != nil {
		l.release(ctx) // the script may have acquired it
		return nil, err
	}
	if n != 1 {
		return nil, nil
	}
	return l, nil
}

// renew returns 1, or 0 if another process holds the lock. A duration of 0 releases the lock.
func (l *Lock) renew(ctx context.Context, duration time.Duration) (int, error) {
	return redisscript.Run(ctx, l.client, "renew_lock", []string{l.key}, l.token, duration.Milliseconds()).Int()
}

// release releases the lock if this process owns it. If the call fails, the lock expires.
func (l *Lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.renew(ctx, 0)
}

// Token returns the value of the key while this process owns the lock, for a script that writes only then.
func (l *Lock) Token() string { return l.token }

// KeepRenewed renews the lock until ctx ends or release is called, which releases it. If the lock is lost, it cancels
// held.
func (l *Lock) KeepRenewed(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(l.duration / 3)
		defer tick.Stop()
		for until := time.Now().Add(l.duration); ; {
			select {
			case <-held.Done():
				return
			case <-tick.C:
			}
			n, err := l.renew(held, l.duration)
			switch {
			case err == nil && n == 1:
				until = time.Now().Add(l.duration)
			case err == nil || time.Now().After(until):
				cancel()
				return
			}
		}
	}()
	return held, func() {
		cancel()
		<-done
		l.release(ctx)
	}
}
