package admission

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// snapshot names the copies of a shard's queue at one instant.
type snapshot struct {
	shard          keyspace.Shard
	ready, delayed string
	orders         string // the stream
	leased         string // id up to which its entries are; empty: none is
	batches        []string
	returns, lines []string // of each sale; lines are those of dead letters that hold a unit
}

func newSnapshot(shard keyspace.Shard, batches, sales int) *snapshot {
	name := rand.Text()
	s := &snapshot{shard: shard, ready: shard.Copy(name, "ready"), delayed: shard.Copy(name, "delayed"), orders: shard.Copy(name, "orders")}
	for i := range batches {
		s.batches = append(s.batches, shard.Copy(name, "batch"+strconv.Itoa(i)))
	}
	for i := range sales {
		s.returns = append(s.returns, shard.Copy(name, "returns"+strconv.Itoa(i)))
		s.lines = append(s.lines, shard.Copy(name, "lines"+strconv.Itoa(i)))
	}
	return s
}

func (s *snapshot) keys(batches, sales []string) []string {
	keys := []string{s.shard.Ready(), s.shard.Delayed(), s.shard.DeadLetters(), s.shard.Leases(), s.ready, s.delayed, s.shard.DeadIndex(), s.shard.Orders(), s.orders}
	for i, b := range batches {
		keys = append(keys, s.shard.Batch(b), s.batches[i])
	}
	for i, id := range sales {
		keys = append(keys, s.shard.Sale(id), s.shard.Stock(id), s.shard.Returns(id), s.returns[i], s.lines[i])
	}
	return keys
}

// read calls each for every message, in pieces. Texts that are no messages are left to the worker, which buries them.
func (s *snapshot) read(ctx context.Context, client redis.UniversalClient, each func(place, keyspace.Message)) error {
	list := func(p place, key string) error {
		return pages(func(from, to int64) ([]string, error) { return client.LRange(ctx, key, from, to).Result() }, p, each)
	}
	if err := list(ready, s.ready); err != nil {
		return err
	}
	if err := pages(func(from, to int64) ([]string, error) { return client.ZRange(ctx, s.delayed, from, to).Result() }, delayed, each); err != nil {
		return err
	}
	for _, key := range s.batches {
		if err := list(leased, key); err != nil {
			return err
		}
	}
	return s.readStream(ctx, client, each)
}

// readReturns reads the first piece of every sale in few round trips: hardly any has a second.
func (s *snapshot) readReturns(ctx context.Context, client redis.UniversalClient, ids []string, censuses map[string]*UnitCount) error {
	for from := 0; from < len(ids); from += salesPerRead {
		some := ids[from:min(from+salesPerRead, len(ids))]
		first := make([]*redis.ScanCmd, len(some))
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range some {
				first[i] = p.HScan(ctx, s.returns[from+i], 0, "", readChunk)
			}
			return nil
		}); err != nil {
			return err
		}
		for i, saleID := range some {
			fields, cursor := first[i].Val()
			for {
				censuses[saleID].addReturned(fields)
				if cursor == 0 {
					break
				}
				var err error
				if fields, cursor, err = client.HScan(ctx, s.returns[from+i], cursor, "", readChunk).Result(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *snapshot) remove(ctx context.Context, client redis.UniversalClient) {
	ctx = context.WithoutCancel(ctx)
	_ = client.Unlink(ctx, slices.Concat([]string{s.ready, s.delayed, s.orders}, s.batches, s.returns, s.lines)...).Err() // else they expire
}

func pages(read func(from, to int64) ([]string, error), p place, each func(place, keyspace.Message)) error {
	for from := int64(0); ; from += readChunk {
		texts, err := read(from, from+readChunk-1)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if m, err := keyspace.DecodeMessage(text); err == nil {
				each(p, m)
			}
		}
		if len(texts) < readChunk {
			return nil
		}
	}
}
