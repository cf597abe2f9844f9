package queue

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Config configures a queue. Fields that are zero or negative take the defaults in their comments. All processes of a
// shard should use the same values.
type Config struct {
	Stream      bool           // Push adds messages to the stream of the shard instead of its list
	Lease       time.Duration  // duration of a lease; DefaultLease, at least 1 ms
	MaxAttempts int            // failures after which a message becomes a dead letter; 5
	MaxCrashes  int            // expired leases after which a message is leased alone; one more makes it a dead letter; 3
	BackoffBase time.Duration  // maximum delay after the first failure, doubled by each further one; 200 ms
	BackoffCap  time.Duration  // maximum delay after any failure; 1 min
	CallTimeout time.Duration  // timeout of a call to Redis; needs a client with ContextTimeoutEnabled; 3 s
	Jitter      func() float64 // fraction of the maximum delay, in [0,1]; default uniformly random ("full jitter")
	OnReclaim   func(n int)    // called with the number of messages of each requeued lease, concurrently; may be nil
	// Deployment returns the id of the deployment of this process, 0 if it is not known. Register, RetryDead, BeginCancel
	// and FinishCancel fail if the data belongs to another deployment. nil: not known.
	Deployment func() int64
}

// DefaultLease is the default duration of a lease.
const DefaultLease = 10 * time.Second

func (c Config) withDefaults() Config {
	c.Lease = max(cmp.Or(max(c.Lease, 0), DefaultLease), time.Millisecond)
	c.MaxAttempts = cmp.Or(max(c.MaxAttempts, 0), 5)
	c.MaxCrashes = cmp.Or(max(c.MaxCrashes, 0), 3)
	c.BackoffBase = cmp.Or(max(c.BackoffBase, 0), 200*time.Millisecond)
	c.BackoffCap = cmp.Or(max(c.BackoffCap, 0), time.Minute)
	c.CallTimeout = cmp.Or(max(c.CallTimeout, 0), 3*time.Second)
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.OnReclaim == nil {
		c.OnReclaim = func(int) {}
	}
	if c.Deployment == nil {
		c.Deployment = func() int64 { return 0 }
	}
	return c
}
