package sim

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// entry is one of the stream of a shard.
type entry struct{ id, batch, text string } // batch is empty when it is not leased

// entries returns the entries of a shard's stream. A delivered entry that is pending for no consumer is a violation.
func (w *world) entries(shard keyspace.Shard) []entry {
	found, err := w.mini.Stream(shard.Orders())
	if err != nil || len(found) == 0 {
		return nil
	}
	pending, delivered := delivery(w.redis, shard.Orders())
	all := make([]entry, 0, len(found))
	for _, e := range found {
		if len(e.Values) != 2 || e.Values[0] != "m" {
			w.violate("the stream holds %q, which is not a message", e.Values)
			continue
		}
		all = append(all, entry{e.ID, pending[e.ID], e.Values[1]})
		if delivered != "" && pending[e.ID] == "" && newest(e.ID, delivered) == delivered {
			w.violate("entry %s was delivered and is pending for no consumer", e.ID)
		}
		delete(pending, e.ID)
	}
	if len(pending) > 0 {
		w.violate("pending entries do not exist: %v", pending)
	}
	return all
}

// newest returns the later one of two ids.
func newest(a, b string) string {
	var am, an, bm, bn uint64
	_, _ = fmt.Sscanf(a, "%d-%d", &am, &an) // both are well formed
	_, _ = fmt.Sscanf(b, "%d-%d", &bm, &bn)
	if am > bm || am == bm && an > bn {
		return a
	}
	return b
}

// delivery returns the consumer of each pending entry of a stream, and the last delivered id; empty without a group.
func delivery(c redisconn.Client, key string) (pending map[string]string, last string) {
	ctx := context.Background()
	pending = map[string]string{}
	for _, g := range c.XInfoGroups(ctx, key).Val() {
		last = g.LastDeliveredID
		all := c.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: g.Name, Start: "-", End: "+", Count: 10_000}).
			Val()
		for _, p := range all {
			pending[p.ID] = p.Consumer
		}
	}
	return pending, last
}

// rememberStream returns the commands that restore a stream.
func rememberStream(mini *miniredis.Miniredis, key string) (commands [][]string, err error) {
	entries, err := mini.Stream(key)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		commands = append(commands, append([]string{"XADD", key, e.ID}, e.Values...))
	}
	c := connect(mini)
	defer c.Close()
	pending, last := delivery(c, key)
	if last == "" {
		return commands, nil
	}
	commands = append(commands, []string{"XGROUP", "CREATE", key, keyspace.OrdersGroup, last, "MKSTREAM"})
	for _, e := range entries {
		if batch := pending[e.ID]; batch != "" {
			commands = append(commands, []string{"XCLAIM", key, keyspace.OrdersGroup, batch, "0", e.ID, "FORCE", "JUSTID"})
		}
	}
	return commands, nil
}
