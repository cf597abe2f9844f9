package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Census is where every order of one sale is in Redis, at one instant.
type UnitCount struct {
	Loaded     bool // Redis holds the sale; if not, the numbers are 0
	Stock      int64
	Left       int64
	Accepted   int64
	LastReturn int64          // number of the last unit of a cancelled order that was taken back
	Returned   []sale.OrderID // orders whose unit was taken back, and whose rows may not know yet
	Ready      []keyspace.Message
	Delayed    []keyspace.Message
	Leased     []keyspace.Message
	Dead       []keyspace.Message
	Unbacked   int64 // dead letters that hold no unit: there may be any number of them

	lines int64 // dead letters that hold one
}

// InFlight calls yield for every order in the census that holds a unit.
func (c *UnitCount) InFlight(yield func(keyspace.Message)) {
	for _, place := range [][]keyspace.Message{c.Ready, c.Delayed, c.Leased, c.Dead} {
		for _, m := range place {
			yield(m)
		}
	}
}

// TakeCensus counts the orders of one sale; see TakeCensuses.
func (s *Stock) CountUnits(ctx context.Context, id string) (UnitCount, error) {
	all, err := s.CountShardUnits(ctx, s.space.ShardOf(id), []string{id})
	if err != nil {
		return UnitCount{}, err
	}
	return *all[id], nil
}

const (
	copyTimeout  = 20 * time.Second // of the script that copies
	countTimeout = time.Minute      // of all of it
	copyLifetime = 2 * time.Minute  // longer than a census may take: one that dies leaves nothing behind
	readChunk    = 2000             // messages read at once: about a millisecond of Redis's time
	maxReindexes = 3                // how often the dead letters are listed before a census is given up
)

// TakeCensuses counts the orders of several sales of one shard, all at the same instant. Redis copies the shard's queue at that instant, which holds it up by some
// 40 ms per million queued orders and takes their memory once more; the copies are then read in small pieces, and removed. Of the dead letters, only those of these
// sales are looked at. An error wraps sale.ErrUnavailable.
//
// The dead letters of an older version are listed by sale first, once: see ListDead.
func (s *Stock) CountShardUnits(ctx context.Context, shard keyspace.Shard, ids []string) (map[string]*UnitCount, error) {
	for i := range maxReindexes {
		censuses, err := s.countShardUnits(ctx, shard, ids)
		if !errors.Is(err, errIndexIncomplete) {
			return censuses, err
		}
		_, err = s.indexLetters(ctx, shard)
		if err == nil && i > 0 { // there are lines of letters that are gone
			_, err = s.dropStaleLines(ctx, shard)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, unavailable("census", errors.New("dead letters come and go unlisted: is an older version still at work?"))
}

var errIndexIncomplete = errors.New("admission: not every dead letter is listed by sale")

func (s *Stock) countShardUnits(ctx context.Context, shard keyspace.Shard, ids []string) (map[string]*UnitCount, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	var patient redis.Scripter = s.client
	if c, ok := s.client.(*redis.Client); ok {
		patient = c.WithTimeout(copyTimeout) // shares c's connections, not its read timeout
	}
	for try := 0; ; try++ {
		censuses, err := s.tryCountUnits(ctx, patient, shard, ids)
		switch {
		case errors.Is(err, errStaleBatches):
		case err == nil, errors.Is(err, errIndexIncomplete):
			return censuses, err
		default:
			return nil, unavailable("census", err)
		}
		select { // 0 to 6 ms in an uneven order, so as not to fall into step with a worker
		case <-time.After(time.Duration(try*3%7) * time.Millisecond):
		case <-ctx.Done():
			return nil, unavailable("census", fmt.Errorf("the queue moves too fast; try again (%w)", ctx.Err()))
		}
	}
}

// errMoved says that a batch was leased between the list of batches and the look at them.
var errStaleBatches = errors.New("admission: a batch was leased meanwhile")

func (s *Stock) tryCountUnits(ctx context.Context, patient redis.Scripter, shard keyspace.Shard, ids []string) (map[string]*UnitCount, error) {
	batches, err := s.client.ZRange(ctx, shard.Leases(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	shot := newSnapshot(shard, len(batches), len(ids))
	args := []any{shard.BatchPrefix(), copyLifetime.Milliseconds(), len(batches)}
	for _, id := range ids {
		args = append(args, id)
	}
	f, err := s.snapshot.Run(ctx, patient, shot.keys(batches, ids), args...).StringSlice()
	if err != nil {
		return nil, err
	}
	switch f[0] {
	case "stale":
		return nil, errStaleBatches
	case "unlisted":
		return nil, errIndexIncomplete
	}
	defer shot.remove(ctx, s.client)
	last := len(f) - 1
	shot.leased = f[last]
	censuses, err := parseTotals(ids, f[:last])
	if err != nil {
		return nil, err
	}
	if err := shot.read(ctx, s.client, func(place place, m keyspace.Message) {
		if c := censuses[m.SaleID]; c != nil {
			c.add(place, m)
		}
	}); err != nil {
		return nil, err
	}
	if err := shot.readDead(ctx, s.client, ids, censuses); err != nil {
		return nil, err
	}
	for _, c := range censuses {
		c.uniqueDead()
	}
	return censuses, shot.readReturns(ctx, s.client, ids, censuses)
}

func parseTotals(ids, f []string) (map[string]*UnitCount, error) {
	if len(f) != 6*len(ids) {
		return nil, fmt.Errorf("the script answered %d fields about %d sales", len(f), len(ids))
	}
	censuses := make(map[string]*UnitCount, len(ids))
	for i, id := range ids {
		c := &UnitCount{}
		censuses[id] = c
		fields, numbers := f[6*i:6*i+6], []*int64{&c.lines, &c.Unbacked, &c.LastReturn, &c.Stock, &c.Left, &c.Accepted}
		c.Loaded = fields[3] != "" && fields[4] != ""
		if !c.Loaded {
			numbers = numbers[:2]
		}
		for j, to := range numbers {
			n, err := strconv.ParseInt(fields[j], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("field %d of sale %s is %q", j, id, fields[j])
			}
			*to = n
		}
	}
	return censuses, nil
}

// place is where a message is.
type place int

const (
	ready place = iota
	delayed
	leased
	dead
)

func (c *UnitCount) add(p place, m keyspace.Message) {
	switch p {
	case ready:
		c.Ready = append(c.Ready, m)
	case delayed:
		c.Delayed = append(c.Delayed, m)
	case leased:
		c.Leased = append(c.Leased, m)
	case dead:
		m.Status = sale.StatusDead
		c.Dead = append(c.Dead, m)
	}
}

// once leaves one letter of each order: somebody may have put a copy of one under another key.
func (c *UnitCount) uniqueDead() {
	slices.SortFunc(c.Dead, func(a, b keyspace.Message) int { return cmp.Compare(a.ID, b.ID) })
	c.Dead = slices.CompactFunc(c.Dead, func(a, b keyspace.Message) bool { return a.ID == b.ID })
}

// given notes orders whose unit was taken back, of which fields are ids and numbers by turns.
func (c *UnitCount) addReturned(fields []string) {
	for at := 0; at < len(fields); at += 2 {
		if id, err := sale.ParseOrderID(fields[at]); err == nil {
			c.Returned = append(c.Returned, id)
		}
	}
}
