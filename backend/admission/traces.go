package admission

import (
	"strconv"
	"time"

	"sluice/backend/redis/keyspace"
)

// traceTTL is the lifetime of the stored traceparent of an order. An order that waits longer is written without a span.
const traceTTL = time.Hour

// appendTraces appends the keys for purchases with sampled traces. It returns the argument of the script for them, and
// their traceparents.
func appendTraces(shard keyspace.Shard, group []*waiter, keys []string) (all []string, arg []byte, parents []string) {
	for i, w := range group {
		if w.request.Trace == "" {
			continue
		}
		if arg == nil {
			arg = strconv.AppendInt(nil, traceTTL.Milliseconds(), 10)
		}
		arg = strconv.AppendInt(append(arg, ' '), int64(i+1), 10)
		arg = append(append(arg, ' '), w.request.Trace...)
		keys = append(keys, shard.Trace(w.id.String()))
		parents = append(parents, w.request.Trace)
	}
	return keys, arg, parents
}

// traceScript starts the span of a run that decides the purchases with these traceparents.
func (a *Admitter) traceScript(parents []string) (end func(err error)) {
	if a.cfg.Tracer == nil || len(parents) == 0 {
		return func(error) {}
	}
	return a.cfg.Tracer.Script(parents)
}
