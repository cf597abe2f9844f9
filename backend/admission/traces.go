package admission

import (
	"strconv"
	"time"

	"sluice/backend/redis/keyspace"
)

// traceTTL is the lifetime of the stored traceparent of an order. An order that waits longer is written without a span.
const traceTTL = time.Hour

// appendTraces appends the keys for purchases with sampled traces, and returns the argument of the script for them.
func appendTraces(shard keyspace.Shard, group []*waiter, keys []string) (all []string, traces []byte) {
	for i, w := range group {
		if w.request.Trace == "" {
			continue
		}
		if traces == nil {
			traces = strconv.AppendInt(nil, traceTTL.Milliseconds(), 10)
		}
		traces = strconv.AppendInt(append(traces, ' '), int64(i+1), 10)
		traces = append(append(traces, ' '), w.request.Trace...)
		keys = append(keys, shard.Trace(w.id.String()))
	}
	return keys, traces
}

// traceScript starts the span of a run, if one of its purchases is traced.
func (a *Admitter) traceScript(group []*waiter) (end func(err error)) {
	var parents []string
	if a.cfg.Tracer != nil {
		for _, w := range group {
			if w.request.Trace != "" {
				parents = append(parents, w.request.Trace)
			}
		}
	}
	if len(parents) == 0 {
		return func(error) {}
	}
	return a.cfg.Tracer.Script(parents)
}
