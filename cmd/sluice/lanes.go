package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"sluice/backend/admission"
)

const (
	envLanes    = "SLUICE_LANES"
	envMaxReady = "SLUICE_MAX_READY"
)

// maxLanes bounds the lanes: each costs every worker a few waiting connections, and every look at the queue a round trip.
const maxLanes = 64

// storesConfig says where sales and orders are kept.
type storesConfig struct {
	redisURL, database string
	lanes              int
	blocking           int // connections that wait in Redis for work
}

// lanesFlag is the same in every process.
func (p *program) lanesFlag(f *pflag.FlagSet, to *int) {
	p.number(f, to, "lanes", envLanes, 1, "queues over which sales are spread, a sale in one of them; the same in every process, and for good")
}

// queueFlags are those of a process that fills the queue.
func (p *program) queueFlags(f *pflag.FlagSet, cfg *backendConfig) {
	p.lanesFlag(f, &cfg.lanes)
	p.number(f, &cfg.maxReady, "max-ready", envMaxReady, admission.DefaultMaxReady,
		"orders that may wait in one lane; beyond that, purchases of its sales are answered 503. About 150 bytes of Redis each")
}

func (m *mistakes) checkLanes(n int) {
	if n < 1 || n > maxLanes {
		m.add("--lanes must be between 1 and %d", maxLanes)
	}
}

// number adds a flag of a number whose default comes from the environment. A bad number in there is 0, which no check lets pass.
func (p *program) number(f *pflag.FlagSet, to *int, name, env string, def int, help string) {
	if v := p.getenv(env); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			n = 0
		}
		def = n
	}
	f.IntVar(to, name, def, fmt.Sprintf("%s [%s]", help, env))
}
