package admission

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// snapshot names the copies of the queue of a shard at one instant.
type snapshot struct {
	shard          keyspace.Shard
	ready, delayed string
	orders         string // the stream
	leased         string // entries up to this id are leased; "" if none are
	batches        []string
	returns, lines []string // per sale; lines holds the index lines of dead letters that hold a unit
}

func newSnapshot(shard keyspace.Shard, batches, sales int) *snapshot {
	name := rand.Text()
	s := &snapshot{
		shard: shard, ready: shard.Copy(name, "ready"), delayed: shard.Copy(name, "delayed"),
		orders: shard.Copy(name, "orders"),
	}
	for i := range batches {
		s.batches = append(s.batches, shard.Copy(name, "batch"+strconv.Itoa(i)))
	}
	for i := range sales {
		s.returns = append(s.returns, shard.Copy(name, "returns"+strconv.Itoa(i)))
		s.lines = append(s.lines, shard.Copy(name, "lines"+strconv.Itoa(i)))
	}
	return s
}

// keys returns the KEYS of snapshot.lua.
func (s *snapshot) keys(batches, sales []string) []string {
	keys := []string{
		s.shard.Ready(), s.shard.Delayed(), s.shard.DeadLetters(), s.shard.Leases(), s.ready, s.delayed,
		s.shard.DeadIndex(), s.shard.Orders(), s.orders,
	}
	for i, b := range batches {
		keys = append(keys, s.shard.Batch(b), s.batches[i])
	}
	for i, id := range sales {
		keys = append(keys, s.shard.Sale(id), s.shard.Stock(id), s.shard.Returns(id), s.returns[i], s.lines[i])
	}
	return keys
}

// read calls each for every message, in small reads. It skips texts that are not messages; the worker makes them dead
// letters.
func (s *snapshot) read(
	ctx context.Context, client redis.UniversalClient, each func(queuePart, keyspace.Message),
) error {
	list := func(part queuePart, key string) error {
		return pages(part, each, func(from, to int64) ([]string, error) { return client.LRange(ctx, key, from, to).Result() })
	}
	if err := list(ready, s.ready); err != nil {
		return err
	}
	if err := pages(delayed, each, func(from, to int64) ([]string, error) {
		return client.ZRange(ctx, s.delayed, from, to).Result()
	}); err != nil {
		return err
	}
	for _, key := range s.batches {
		if err := list(leased, key); err != nil {
			return err
		}
	}
	return s.readStream(ctx, client, each)
}

func pages(
	part queuePart, each func(queuePart, keyspace.Message), read func(from, to int64) ([]string, error),
) error {
	for from := int64(0); ; from += readChunk {
		texts, err := read(from, from+readChunk-1)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if m, err := keyspace.DecodeMessage(text); err == nil {
				each(part, m)
			}
		}
		if len(texts) < readChunk {
			return nil
		}
	}
}

// readReturns reads the first part of the returns of every sale in few round trips. A sale rarely has a second part.
func (s *snapshot) readReturns(
	ctx context.Context, client redis.UniversalClient, ids []string, counts map[string]*UnitCount,
) error {
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
			c := counts[saleID]
			pairs, cursor := first[i].Val()
			for {
				c.Returned = append(c.Returned, orderIDs(pairs)...)
				if cursor == 0 {
					break
				}
				var err error
				if pairs, cursor, err = client.HScan(ctx, s.returns[from+i], cursor, "", readChunk).Result(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readDead reads the lines of every sale with dead letters that hold a unit.
func (s *snapshot) readDead(
	ctx context.Context, client redis.UniversalClient, ids []string, counts map[string]*UnitCount,
) error {
	for i, saleID := range ids {
		c := counts[saleID]
		for from := int64(0); from < c.lines; from += readChunk {
			lines, err := client.ZRange(ctx, s.lines[i], from, from+readChunk-1).Result()
			if err != nil {
				return err
			}
			for _, line := range lines {
				if d, err := keyspace.DecodeDeadLine(line); err == nil {
					c.add(dead, d.Message)
				}
			}
		}
	}
	return nil
}

// remove deletes the copies. If it fails, they expire.
func (s *snapshot) remove(ctx context.Context, client redis.UniversalClient) {
	keys := slices.Concat([]string{s.ready, s.delayed, s.orders}, s.batches, s.returns, s.lines)
	_ = client.Unlink(context.WithoutCancel(ctx), keys...).Err()
}
