package queue

import (
	"math/rand/v2"
	"time"
)

// Config tunes a queue. Zero fields take the defaults named here. Every process on a shard should use the same.
type Config struct {
	Lease       time.Duration  // how long a worker may keep a batch without extending it; 10 s, at least 1 ms
	MaxAttempts int            // failures after which a message dies; 5
	MaxCrashes  int            // leases run out after which a message travels alone; once more, and it dies; 3
	BackoffBase time.Duration  // upper bound of the wait after the first failure, doubled with each further one; 200 ms
	BackoffCap  time.Duration  // upper bound of every wait; 1 min
	CallTimeout time.Duration  // bound of one call to Redis, if the client has ContextTimeoutEnabled; 3 s
	Jitter      func() float64 // share of the upper bound that is waited, in [0,1]; uniformly random ("full jitter")
	Reclaimed   func(n int)    // told how many messages each reclaimed lease gave back; must be safe for concurrent use; may be nil
}

func (c Config) withDefaults() Config {
	orDuration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	orDuration(&c.Lease, 10*time.Second)
	orDuration(&c.BackoffBase, 200*time.Millisecond)
	orDuration(&c.BackoffCap, time.Minute)
	orDuration(&c.CallTimeout, 3*time.Second)
	c.Lease = max(c.Lease, time.Millisecond)
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 5
	}
	if c.MaxCrashes <= 0 {
		c.MaxCrashes = 3
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Reclaimed == nil {
		c.Reclaimed = func(int) {}
	}
	return c
}
