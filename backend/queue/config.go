package queue

import (
	"math/rand/v2"
	"time"
)

// Config configures a queue. Zero fields take the defaults in their comments. All processes of a shard should use the
// same values.
type Config struct {
	Lease       time.Duration  // duration of a lease; 10 s, at least 1 ms
	MaxAttempts int            // failures after which a message becomes a dead letter; 5
	MaxCrashes  int            // expired leases after which a message is leased alone; one more makes it a dead letter; 3
	BackoffBase time.Duration  // maximum delay after the first failure, doubled by each further one; 200 ms
	BackoffCap  time.Duration  // maximum delay after any failure; 1 min
	CallTimeout time.Duration  // timeout of a call to Redis; needs a client with ContextTimeoutEnabled; 3 s
	Jitter      func() float64 // fraction of the maximum delay, in [0,1]; default uniformly random ("full jitter")
	OnReclaim   func(n int)    // called with the number of messages of each requeued lease, concurrently; may be nil
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
	if c.OnReclaim == nil {
		c.OnReclaim = func(int) {}
	}
	return c
}
