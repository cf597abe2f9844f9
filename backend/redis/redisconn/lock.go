package redisconn

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	redisscript "sluice/lua/redis"
)

// Lock keeps several processes from doing the same work at once. It is a courtesy and no fence: a holder that is paused past its time does not know that it is
// held by another, and what it does must be refused by other means.
type Lock struct {
	client   redis.UniversalClient
	key      string
	token    string
	duration time.Duration
	renew    *redis.Script
}

// Acquire takes the lock named key for a while, if nobody holds it; else the Lock is nil.
func Acquire(ctx context.Context, client redis.UniversalClient, key string, lasts time.Duration) (*Lock, error) {
	l := &Lock{client: client, key: key, token: rand.Text(), duration: lasts, renew: redisscript.Load("renew_lock")}
	// The script takes what nobody holds, and may be sent twice: after SET NX whose answer was lost the lock would be nobody's until it ran out.
	n, err := l.renew.Run(ctx, client, []string{key}, l.token, lasts.Milliseconds()).Int()
	if err != nil {
		l.release(ctx) // it may be ours
		return nil, err
	}
	if n != 1 {
		return nil, nil
	}
	return l, nil
}

// release gives the lock back, if it is ours; should that fail, it runs out.
func (l *Lock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = l.renew.Run(ctx, l.client, []string{l.key}, l.token, 0).Err()
}

// Keep renews the lock until ctx ends or somebody else has it, which cancels the context it returns; release gives it back.
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
			n, err := l.renew.Run(held, l.client, []string{l.key}, l.token, l.duration.Milliseconds()).Int()
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
