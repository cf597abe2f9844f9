package admission

import (
	"strconv"
	"time"

	"sluice/backend/redis/keyspace"
)

// traceTTL is how long the trace of an order is known. An order that waits for longer is written all the same, and is not shown.
const traceTTL = time.Hour

// traced appends what the script has to know of purchases whose traces are sampled: nothing when there is none.
func appendTraces(shard keyspace.Shard, group []*waiter, keys []string, args []any) ([]string, []any) {
	var traces []byte
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
	if traces != nil {
		args = append(args, string(traces))
	}
	return keys, args
}
