package rebuild

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

const (
	readChunk  = 5000 // messages or rows read at once
	writeChunk = 500  // pairs or messages written by one run of a script: about a millisecond of Redis's time
	inFlight   = 20   // runs of a script that share a round trip
)

// kept are the messages of one shard that this rebuild has nothing to say about: of other sales, and texts that are no messages.
type kept map[keyspace.Shard][]string

// readQueues reads what the shards hold. They stand still: see the scripts' check of rebuilding.
func (j *job) readQueues(ctx context.Context) error {
	j.kept, j.batches = kept{}, map[keyspace.Shard][]string{}
	for _, shard := range j.space.All() {
		if err := j.readQueue(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) readQueue(ctx context.Context, shard keyspace.Shard) error {
	leases, err := j.client.ZRange(ctx, shard.Leases(), 0, -1).Result()
	if err != nil {
		return unavailable(err)
	}
	list := func(key string) func(from, to int64) *redis.StringSliceCmd {
		return func(from, to int64) *redis.StringSliceCmd { return j.client.LRange(ctx, key, from, to) }
	}
	for _, id := range leases { // the oldest messages, those of a batch the oldest first
		j.batches[shard] = append(j.batches[shard], shard.Batch(id))
		if err := j.each(shard, list(shard.Batch(id))); err != nil {
			return err
		}
	}
	if err := j.each(shard, func(from, to int64) *redis.StringSliceCmd { return j.client.ZRange(ctx, shard.Delayed(), from, to) }); err != nil {
		return err
	}
	// ready holds the newest left: from the right end on, each piece turned round
	if err := j.each(shard, func(from, to int64) *redis.StringSliceCmd {
		part := j.client.LRange(ctx, shard.Ready(), -to-1, -from-1)
		if part.Err() == nil {
			slices.Reverse(part.Val())
		}
		return part
	}); err != nil {
		return err
	}
	if err := admission.ScanOrders(ctx, j.client, shard.Orders(), func(_, text string) { j.keep(shard, text) }); err != nil {
		return unavailable(err)
	}
	err = admission.ScanDeadLetters(ctx, j.client, shard.DeadLetters(), func(m sale.Order, backed bool) {
		a := j.byID[m.SaleID]
		if a == nil {
			return
		}
		if _, twice := a.dead[m.ID]; !twice {
			a.dead[m.ID] = !backed
			a.letters = append(a.letters, letter{m, backed})
		}
	})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

func (j *job) each(shard keyspace.Shard, read func(from, to int64) *redis.StringSliceCmd) error {
	for from := int64(0); ; from += readChunk {
		texts, err := read(from, from+readChunk-1).Result()
		if err != nil {
			return unavailable(err)
		}
		for _, text := range texts {
			j.keep(shard, text)
		}
		j.status.done(len(texts))
		if len(texts) < readChunk {
			return nil
		}
	}
}

func (j *job) keep(shard keyspace.Shard, text string) {
	m, err := keyspace.DecodeMessage(text)
	if a := j.byID[m.SaleID]; err == nil && a != nil {
		a.queue = append(a.queue, m)
	} else {
		j.kept[shard] = append(j.kept[shard], text)
	}
}

// swapQueues puts the queue of each shard together anew and lets it take the place of the old one. No batch is leased any more: who holds one can neither acknowledge nor
// write it.
func (j *job) swapQueues(ctx context.Context) error {
	for _, shard := range j.space.All() {
		texts := j.kept[shard]
		for _, a := range j.sales {
			if a.shard != shard {
				continue
			}
			for _, m := range a.queue {
				texts = append(texts, keyspace.EncodeMessage(m))
			}
			for _, m := range a.requeued {
				texts = append(texts, keyspace.EncodeMessage(m))
			}
		}
		j.status.total(len(texts))
		w := j.writer(ctx, "enqueue", []string{shard.Guard(), shard.RebuildReady()}, 1)
		w.number = true
		for _, text := range texts {
			if err := w.add(text); err != nil {
				return err
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
		forget, err := j.settled(ctx, shard, texts)
		if err != nil {
			return err
		}
		keys := []string{shard.Guard(), shard.RebuildReady(), shard.Ready(), shard.Delayed(), shard.Leases(), shard.Wake(), shard.Attempts(), shard.Crashes(), shard.Orders()}
		if err := j.call(ctx, "swap_queue", append(keys, j.batches[shard]...), forget...); err != nil {
			return err
		}
	}
	return nil
}

// settled are the orders that had failures or crashes and are not among these messages: what is remembered of them would cost every acknowledgement a look.
func (j *job) settled(ctx context.Context, shard keyspace.Shard, texts []string) ([]any, error) {
	troubled := map[string]bool{}
	for _, key := range []string{shard.Attempts(), shard.Crashes()} {
		ids, err := j.client.HKeys(ctx, key).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		for _, id := range ids {
			troubled[id] = true
		}
	}
	if len(troubled) == 0 {
		return nil, nil
	}
	for _, text := range texts {
		if m, err := keyspace.DecodeMessage(text); err == nil {
			delete(troubled, m.ID.String())
		}
	}
	forget := make([]any, 0, len(troubled))
	for id := range troubled {
		forget = append(forget, id)
	}
	return forget, nil
}

// writer collects the arguments of a script and runs it for a chunk at a time, several in one round trip.
type writer struct {
	job    *job
	ctx    context.Context
	script string
	keys   []string
	size   int // arguments that belong together
	before int // of them, how many were added by the runs before; told to the scripts that are numbered
	number bool
	args   []any
	runs   [][]any
}

func (j *job) writer(ctx context.Context, script string, keys []string, size int) *writer {
	return &writer{job: j, ctx: ctx, script: script, keys: keys, size: size}
}

func (w *writer) add(args ...any) error {
	if w.args == nil {
		w.args = append(make([]any, 0, 2+writeChunk*w.size), w.job.fence)
		if w.number {
			w.args = append(w.args, w.before)
		}
	}
	w.before++
	if w.args = append(w.args, args...); w.before%writeChunk != 0 {
		return nil
	}
	w.runs, w.args = append(w.runs, w.args), nil
	if len(w.runs) < inFlight {
		return nil
	}
	return w.send()
}

// head is how many arguments precede the first pair.
func (w *writer) head() int {
	if w.number {
		return 2
	}
	return 1
}

func (w *writer) flush() error {
	if w.args != nil {
		w.runs, w.args = append(w.runs, w.args), nil
	}
	if len(w.runs) == 0 {
		return nil
	}
	return w.send()
}

// send runs the script for what is collected. A client may send that twice: see rebuild_enqueue.lua. After an error the rebuild ends, and the next one begins with an
// empty list.
func (w *writer) send() error {
	script := w.job.scripts[w.script]
	if err := script.Load(w.ctx, w.job.client).Err(); err != nil {
		return unavailable(err)
	}
	answers := make([]*redis.Cmd, len(w.runs))
	pairs := 0
	_, err := w.job.client.Pipelined(w.ctx, func(p redis.Pipeliner) error {
		for i, args := range w.runs {
			answers[i] = script.EvalSha(w.ctx, p, w.keys, args...)
			pairs += (len(args) - w.head()) / w.size
		}
		return nil
	})
	if err != nil {
		return unavailable(err)
	}
	for _, answer := range answers {
		if text, _ := answer.Text(); text == "fenced" {
			return errFenced
		}
	}
	w.runs = w.runs[:0]
	w.job.status.done(pairs)
	return nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", sale.ErrUnavailable, err) }
