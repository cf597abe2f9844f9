package admission

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// snapshot names the copies of the queue of a shard at one instant.
type snapshot struct {
	shard          keyspace.Shard
	ready, delayed string
	orders         string // the stream
	leased         int64  // number of leased entries of the stream, which are its first ones
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
		s.shard.Ready(), s.shard.Delayed(), s.shard.Dead().Letters(), s.shard.Leases(), s.ready, s.delayed,
		s.shard.Dead().Index(), s.shard.Orders(), s.orders,
	}
	for i, b := range batches {
		keys = append(keys, s.shard.Batch(b), s.batches[i])
	}
	for i, id := range sales {
		keys = append(keys, s.shard.Sale(id), s.shard.Stock(id), s.shard.Returns(id), s.returns[i], s.lines[i])
	}
	return keys
}

// read adds every message to the count of its sale. It skips texts that are not messages; the worker makes them dead
// letters.
func (s *snapshot) read(ctx context.Context, client redisconn.Client, counts map[string]*UnitCount) error {
	add := func(part func(*UnitCount) *[]keyspace.Message) func(text string) {
		return func(text string) {
			m, err := keyspace.DecodeMessage(text)
			if c := counts[m.SaleID]; err == nil && c != nil {
				*part(c) = append(*part(c), m)
			}
		}
	}
	ready := add(func(c *UnitCount) *[]keyspace.Message { return &c.Ready })
	leased := add(func(c *UnitCount) *[]keyspace.Message { return &c.Leased })
	delayed := add(func(c *UnitCount) *[]keyspace.Message { return &c.Delayed })
	if err := ScanPages(ctx, client.LRange, s.ready, ready); err != nil {
		return err
	}
	if err := ScanPages(ctx, client.ZRange, s.delayed, delayed); err != nil {
		return err
	}
	for _, key := range s.batches {
		if err := ScanPages(ctx, client.LRange, key, leased); err != nil {
			return err
		}
	}
	entries := int64(0)
	return ScanOrders(ctx, client, s.orders, func(text string) {
		if entries++; entries > s.leased {
			ready(text)
		} else {
			leased(text)
		}
	})
}

// readSale reads the returns of the sale with number i, and its dead letters that hold a unit.
func (s *snapshot) readSale(ctx context.Context, client redisconn.Client, i int, c *UnitCount) error {
	if c.returns > 0 {
		err := scanPairs(ctx, client.HScan, s.returns[i], func(pairs []string) error {
			c.Returned = append(c.Returned, orderIDs(pairs)...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if c.lines == 0 {
		return nil
	}
	seen := map[sale.OrderID]bool{} // a letter can have been copied to another key by hand
	return ScanPages(ctx, client.ZRange, s.lines[i], func(line string) {
		if m, err := keyspace.DecodeDeadLine(line); err == nil && !seen[m.ID] {
			seen[m.ID] = true
			m.Status = sale.StatusDead
			c.Dead = append(c.Dead, m)
		}
	})
}

// remove deletes the copies and returns their number. If it fails, they expire.
func (s *snapshot) remove(ctx context.Context, client redisconn.Client) int64 {
	keys := slices.Concat([]string{s.ready, s.delayed, s.orders}, s.batches, s.returns, s.lines)
	return client.Unlink(context.WithoutCancel(ctx), keys...).Val()
}
