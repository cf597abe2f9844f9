package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"sluice/backend/admission"
)

const (
	envShards   = "SLUICE_SHARDS"
	envMaxReady = "SLUICE_MAX_READY"
	envWait     = "SLUICE_REDIS_WAIT"
)

// maxShards bounds the shards: each costs every worker a few waiting connections, and every look at the queue a round
// trip.
const maxShards = 64

// storesConfig names the stores of sales and orders.
type storesConfig struct {
	redisURL, database string
	shards             int
	queue              string // driverList or driverStream
	blocking           int    // connections that wait in Redis for work
}

// shardsFlag is the same in every process.
func (p *program) shardsFlag(f *pflag.FlagSet, to *int) {
	p.number(
		f,
		to,
		"shards",
		envShards,
		1,
		"number of queues; each sale lives in one of them; equal in every process and permanent",
	)
}

// queueFlags are those of a process that fills the queue.
func (p *program) queueFlags(f *pflag.FlagSet, cfg *backendConfig) {
	p.shardsFlag(f, &cfg.shards)
	p.driverFlag(f, &cfg.queue)
	p.number(
		f,
		&cfg.maxReady,
		"max-ready",
		envMaxReady,
		admission.DefaultMaxReady,
		"orders that may wait in one shard; beyond that, purchases of its sales are answered 503. About 150 bytes of "+
			"Redis each",
	)
	p.number(
		f,
		&cfg.redisWait,
		"redis-wait",
		envWait,
		0,
		"replicas of Redis that must have an order before the 202; with too few for half a second the answer is 503, and "+
			"a retry finds the order",
	)
}

// checkWait wants a Redis that can have so many replicas.
func (m *problems) checkWait(n int, embedded bool) {
	switch {
	case n < 0 || n > maxReplicas:
		m.add("--redis-wait must be between 0 and %d", maxReplicas)
	case n > 0 && embedded:
		m.add("--redis-wait %d: the embedded Redis has no replicas; name a real one with --redis", n)
	}
}

// maxReplicas is a bound against typing errors: a number that is too high would reject every purchase.
const maxReplicas = 16

func (m *problems) checkShards(n int) {
	if n < 1 || n > maxShards {
		m.add("--shards must be between 1 and %d", maxShards)
	}
}

// number adds an integer flag with its default from the environment. An invalid default is -1, which every check
// rejects.
func (p *program) number(f *pflag.FlagSet, to *int, name, env string, def int, help string) {
	if v := p.getenv(env); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			n = -1
		}
		def = n
	}
	f.IntVar(to, name, def, fmt.Sprintf("%s [%s]", help, env))
}
