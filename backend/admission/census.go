package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
	"sluice/backend/sale"
)

// Census is where every order of one sale is in Redis, at one instant.
type Census struct {
	Loaded   bool // Redis holds the sale; if not, the numbers are 0
	Stock    int64
	Left     int64
	Accepted int64
	Returned int64          // number of the last unit of a cancelled order that was taken back
	Given    []sale.OrderID // orders whose unit was taken back, and whose rows may not know yet
	Ready    []keyspace.Message
	Delayed  []keyspace.Message
	Leased   []keyspace.Message
	Dead     []keyspace.Message
	Unbacked []sale.OrderID // dead letters that hold no unit: there may be very many, and nobody asks for more than their ids
}

// InFlight calls yield for every order in the census that holds a unit.
func (c *Census) InFlight(yield func(keyspace.Message)) {
	for _, place := range [][]keyspace.Message{c.Ready, c.Delayed, c.Leased, c.Dead} {
		for _, m := range place {
			yield(m)
		}
	}
}

// TakeCensus counts the orders of one sale; see TakeCensuses.
func (s *Stock) TakeCensus(ctx context.Context, id string) (Census, error) {
	all, err := s.TakeCensuses(ctx, s.space.LaneOf(id), []string{id})
	if err != nil {
		return Census{}, err
	}
	return *all[id], nil
}

const (
	copyTimeout   = 20 * time.Second // of the script that copies
	censusTimeout = time.Minute      // of all of it: a million dead letters took 18 s on a busy machine
	copiesLast    = 2 * time.Minute  // longer than a census may take: one that dies leaves nothing behind
	censusChunk   = 2000             // messages read at once: about a millisecond of Redis's time
)

// TakeCensuses counts the orders of several sales of one lane, all at the same instant. Redis copies the lane's queue at that instant, which holds it up by some
// 40 ms per million queued orders and takes their memory once more; the copies are then read in small pieces, and removed. An error wraps sale.ErrUnavailable.
func (s *Stock) TakeCensuses(ctx context.Context, lane keyspace.Lane, ids []string) (map[string]*Census, error) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	var patient redis.Scripter = s.client
	if c, ok := s.client.(*redis.Client); ok {
		patient = c.WithTimeout(copyTimeout) // shares c's connections, not its read timeout
	}
	for range 20 { // a batch that is leased in between makes the script answer "stale"
		batches, err := s.client.ZRange(ctx, lane.Leases(), 0, -1).Result()
		if err != nil {
			return nil, unavailable("census", err)
		}
		shot := newSnapshot(lane, len(batches), len(ids))
		f, err := s.snapshot.Run(ctx, patient, shot.keys(batches, ids), lane.BatchPrefix(), copiesLast.Milliseconds(), len(batches)).StringSlice()
		if err != nil {
			return nil, unavailable("census", err)
		}
		if f[0] == "stale" {
			continue
		}
		last := len(f) - 1
		shot.leased = f[last]
		censuses, err := parseCounts(ids, f[:last])
		if err == nil {
			err = shot.read(ctx, s.client, func(place place, m keyspace.Message) {
				if c := censuses[m.SaleID]; c != nil {
					c.add(place, m)
				}
			})
		}
		for _, c := range censuses {
			c.once()
		}
		if err == nil {
			err = shot.readReturns(ctx, s.client, ids, censuses)
		}
		shot.remove(ctx, s.client)
		if err != nil {
			return nil, unavailable("census", err)
		}
		return censuses, nil
	}
	return nil, unavailable("census", errors.New("the queue moves too fast; try again"))
}

func parseCounts(ids, f []string) (map[string]*Census, error) {
	if len(f) != 4*len(ids) {
		return nil, fmt.Errorf("the script answered %d fields about %d sales", len(f), len(ids))
	}
	censuses := make(map[string]*Census, len(ids))
	for i, id := range ids {
		c := &Census{}
		censuses[id] = c
		fields := f[4*i : 4*i+4]
		if fields[0] == "" || fields[1] == "" {
			continue
		}
		c.Loaded = true
		for j, to := range []*int64{&c.Stock, &c.Left, &c.Accepted, &c.Returned} {
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
	unbacked
)

func (c *Census) add(p place, m keyspace.Message) {
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
	case unbacked:
		c.Unbacked = append(c.Unbacked, m.ID)
	}
}

// once leaves one of each dead letter: a scan may tell of one twice.
func (c *Census) once() {
	slices.SortFunc(c.Dead, func(a, b keyspace.Message) int { return cmp.Compare(a.ID, b.ID) })
	c.Dead = slices.CompactFunc(c.Dead, func(a, b keyspace.Message) bool { return a.ID == b.ID })
	slices.Sort(c.Unbacked)
	c.Unbacked = slices.Compact(c.Unbacked)
}

// given notes orders whose unit was taken back, of which fields are ids and numbers by turns.
func (c *Census) given(fields []string) {
	for at := 0; at < len(fields); at += 2 {
		if id, err := sale.ParseOrderID(fields[at]); err == nil {
			c.Given = append(c.Given, id)
		}
	}
}

// ScanLetters calls each for every dead letter of an order in the hash key; backed tells whether it holds a unit, cancelling whether somebody has begun to
// cancel it. A letter can come twice; one that comes or goes meanwhile may be missed.
func ScanLetters(ctx context.Context, client redis.UniversalClient, key string, each func(m keyspace.Message, backed, cancelling bool)) error {
	for cursor := uint64(0); ; {
		fields, next, err := client.HScan(ctx, key, cursor, "", censusChunk).Result()
		if err != nil {
			return err
		}
		for i := 1; i < len(fields); i += 2 {
			var letter struct{ State, Message, Unit string }
			if json.Unmarshal([]byte(fields[i]), &letter) != nil {
				continue
			}
			if m, err := keyspace.DecodeMessage(letter.Message); err == nil {
				each(m, letter.Unit != "none", letter.State == "cancelling")
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
