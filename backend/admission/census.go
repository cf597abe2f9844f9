package admission

import (
	"context"
	"errors"
	"fmt"
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
}

// InFlight calls yield for every order in the census.
func (c *Census) InFlight(yield func(keyspace.Message)) {
	for _, place := range [][]keyspace.Message{c.Ready, c.Delayed, c.Leased, c.Dead} {
		for _, m := range place {
			yield(m)
		}
	}
}

// censusTimeout bounds one census. A client that gives up earlier and asks again holds Redis up twice, and learns nothing.
const censusTimeout = 20 * time.Second

// TakeCensus counts the orders of one sale. It reads the lane's whole queue in one script, which holds Redis up by roughly a second per million
// queued orders, and so it waits longer for its answer than other calls do. An error wraps sale.ErrUnavailable.
func (s *Stock) TakeCensus(ctx context.Context, id string) (Census, error) {
	ctx, cancel := context.WithTimeout(ctx, censusTimeout)
	defer cancel()
	var client redis.Scripter = s.client
	if c, ok := s.client.(*redis.Client); ok {
		client = c.WithTimeout(censusTimeout) // shares c's connections, not its read timeout
	}
	lane := s.space.LaneOf(id)
	for range 20 { // a batch that is leased in between makes the script answer "stale"
		batches, err := s.client.ZRange(ctx, lane.Leases(), 0, -1).Result()
		if err != nil {
			return Census{}, unavailable("census of "+id, err)
		}
		keys := []string{lane.Sale(id), lane.Stock(id), lane.Ready(), lane.Delayed(), lane.DeadLetters(), lane.Leases(), lane.Returns(id)}
		for _, b := range batches {
			keys = append(keys, lane.Batch(b))
		}
		f, err := s.census.Run(ctx, client, keys, id, lane.BatchPrefix()).StringSlice()
		if err != nil {
			return Census{}, unavailable("census of "+id, err)
		}
		if len(f) == 1 {
			continue
		}
		c, err := parseCensus(f)
		if err != nil {
			return Census{}, unavailable("census of "+id, err)
		}
		return c, nil
	}
	return Census{}, unavailable("census of "+id, errors.New("the queue moves too fast; try again"))
}

func parseCensus(f []string) (Census, error) {
	var c Census
	if len(f) < 3 || len(f)%2 == 0 {
		return c, fmt.Errorf("the script answered %d fields", len(f))
	}
	if f[0] != "" && f[1] != "" {
		c.Loaded = true
		for i, to := range []*int64{&c.Stock, &c.Left, &c.Accepted} {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return c, fmt.Errorf("field %d is %q", i, f[i])
			}
			*to = n
		}
	}
	for i := 3; i < len(f); i += 2 {
		switch f[i] {
		case "n":
			n, err := strconv.ParseInt(f[i+1], 10, 64)
			if err != nil {
				return c, fmt.Errorf("field %d is %q", i+1, f[i+1])
			}
			c.Returned = n
			continue
		case "b":
			id, err := sale.ParseOrderID(f[i+1])
			if err != nil {
				return c, fmt.Errorf("field %d is %q", i+1, f[i+1])
			}
			c.Given = append(c.Given, id)
			continue
		}
		m, err := keyspace.DecodeMessage(f[i+1])
		if err != nil {
			continue // not an order of ours: the worker buries it
		}
		switch f[i] {
		case "r":
			c.Ready = append(c.Ready, m)
		case "w":
			c.Delayed = append(c.Delayed, m)
		case "l":
			c.Leased = append(c.Leased, m)
		case "d":
			m.Status = sale.StatusDead
			c.Dead = append(c.Dead, m)
		}
	}
	return c, nil
}
