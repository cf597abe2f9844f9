package rebuild

import (
	"context"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

const (
	readChunk  = 5000 // rows per read
	writeChunk = 500  // pairs or messages per run of a script: about a millisecond of Redis time
	inFlight   = 20   // runs of a script per round trip
)

// readQueue reads the messages, oldest first, and the dead letters. They do not change while the shard is held: see
// lua/redis/include/check_shard.lua.
func (j *job) readQueue(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = sale.Unavailable(err)
		}
	}()
	add := func(text string) {
		j.addText(text)
		j.status.done(1)
	}
	if err := j.findBatches(ctx); err != nil {
		return err
	}
	for _, batch := range j.batches {
		if err := admission.ScanPages(ctx, j.oldestFirst, batch, add); err != nil {
			return err
		}
	}
	if err := admission.ScanPages(ctx, j.client.ZRange, j.shard.Delayed(), add); err != nil {
		return err
	}
	if err := admission.ScanPages(ctx, j.oldestFirst, j.shard.Ready(), add); err != nil {
		return err
	}
	err = admission.ScanOrders(ctx, j.client, j.shard.Orders(), j.addText)
	if err != nil {
		return err
	}
	return admission.ScanDeadLetters(ctx, j.client, j.shard.Dead().Letters(), func(m sale.Order, backed bool) {
		c := j.byID[m.SaleID]
		if c == nil {
			return
		}
		if _, twice := c.dead[m.ID]; !twice {
			c.dead[m.ID] = !backed
			c.letters = append(c.letters, letter{m, backed})
		}
	})
}

// findBatches finds the leased batches, and the last batch of each consumer if it has no lease. A batch has no lease if
// the key of the leases was lost: when a hash slot of a Redis Cluster is lost during its move, some of its keys can be
// missing.
func (j *job) findBatches(ctx context.Context) error {
	leases, err := j.client.ZRange(ctx, j.shard.Leases(), 0, -1).Result()
	if err != nil {
		return err
	}
	leased := map[string]bool{}
	for _, id := range leases {
		leased[id] = true
		j.batches = append(j.batches, j.shard.Batch(id))
	}
	consumers, err := j.client.HVals(ctx, j.shard.Consumers()).Result()
	if err != nil {
		return err
	}
	exist := map[string]*redis.IntCmd{}
	_, err = j.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range consumers {
			if !leased[id] {
				key := j.shard.Batch(id)
				exist[key] = p.Exists(ctx, key)
			}
		}
		return nil
	})
	for key, found := range exist {
		if found.Val() == 1 {
			j.batches = append(j.batches, key)
		}
	}
	return err
}

// oldestFirst is LRange with positions from the right, for a list that holds the newest message left.
func (j *job) oldestFirst(ctx context.Context, key string, from, to int64) *redis.StringSliceCmd {
	part := j.client.LRange(ctx, key, -to-1, -from-1)
	slices.Reverse(part.Val())
	return part
}

// addText adds a message to the count of its sale. It keeps texts of other sales and texts that are not messages.
func (j *job) addText(text string) {
	m, err := keyspace.DecodeMessage(text)
	if c := j.byID[m.SaleID]; err == nil && c != nil {
		c.queue = append(c.queue, m)
	} else {
		j.kept = append(j.kept, text)
	}
}

// swapQueue assembles the queue and replaces the old one. It deletes all leases. From then on, a worker can neither
// acknowledge nor write a batch that it leased before.
func (j *job) swapQueue(ctx context.Context) error {
	shard, texts := j.shard, j.kept
	for _, c := range j.sales {
		for _, m := range slices.Concat(c.queue, c.requeued) {
			texts = append(texts, keyspace.EncodeMessage(m))
		}
	}
	j.status.total(len(texts))
	err := j.runAll(ctx, "enqueue", []string{shard.Guard(), shard.RebuildReady()}, true, func(yield func([]any) bool) {
		for _, text := range texts {
			if !yield([]any{text}) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	settled, err := j.settled(ctx, texts)
	if err != nil {
		return err
	}
	keys := []string{
		shard.Guard(), shard.RebuildReady(), shard.Ready(), shard.Delayed(), shard.Leases(), shard.Wake(),
		shard.Attempts(), shard.Crashes(), shard.Orders(),
	}
	return j.call(ctx, "swap_queue", append(keys, j.batches...), settled...)
}

// settled returns the ids of orders that have recorded failures or crashes and no message. Their records are deleted:
// while any record exists, every acknowledgement must read the messages of its batch.
func (j *job) settled(ctx context.Context, texts []string) ([]any, error) {
	orders := map[string]bool{}
	for _, key := range []string{j.shard.Attempts(), j.shard.Crashes()} {
		ids, err := j.client.HKeys(ctx, key).Result()
		if err != nil {
			return nil, sale.Unavailable(err)
		}
		for _, id := range ids {
			orders[id] = true
		}
	}
	if len(orders) == 0 {
		return nil, nil
	}
	for _, text := range texts {
		if m, err := keyspace.DecodeMessage(text); err == nil {
			delete(orders, m.ID.String())
		}
	}
	settled := make([]any, 0, len(orders))
	for id := range orders {
		settled = append(settled, id)
	}
	return settled, nil
}

// runAll runs a script of the rebuild for many items: writeChunk items per run, several runs per round trip. If counted
// is set, each run also gets the number of items of earlier runs. The client may repeat runs, see rebuild_enqueue.lua.
// After an error the rebuild ends, and the next one starts with an empty list.
func (j *job) runAll(
	ctx context.Context, name string, keys []string, counted bool, items iter.Seq[[]any],
) error {
	script, runs, count, sent := redisscript.Load("rebuild_"+name), [][]any(nil), 0, 0
	send := func() error {
		if err := script.Load(ctx, j.client).Err(); err != nil {
			return sale.Unavailable(err)
		}
		results, err := j.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, args := range runs {
				script.EvalSha(ctx, p, keys, args...)
			}
			return nil
		})
		if err != nil {
			return sale.Unavailable(err)
		}
		for _, result := range results {
			text, err := result.(*redis.Cmd).Text()
			if err := guard.ScriptError("rebuild_"+name, text, err); err != nil {
				return err
			}
		}
		j.status.done(count - sent)
		runs, sent = runs[:0], count
		return nil
	}
	for item := range items {
		if count%writeChunk == 0 {
			if len(runs) == inFlight {
				if err := send(); err != nil {
					return err
				}
			}
			run := []any{j.mark()}
			if counted {
				run = append(run, count)
			}
			runs = append(runs, run)
		}
		last := len(runs) - 1
		runs[last] = append(runs[last], item...)
		count++
	}
	if len(runs) == 0 {
		return nil
	}
	return send()
}
