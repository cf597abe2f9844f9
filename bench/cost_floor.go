package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// costFloor measures the minimum that the stores need for an order, in groups and batches of the sizes that sluice had:
// a script that takes units, stores the buyers and queues the orders, without a check, and pops that empty the queue;
// and COPY into a table with a primary key, with a commit for each batch.
type costFloor struct {
	redis   redisconn.Client
	sql     *pgx.Conn
	redisAt *meter
	sqlAt   *meter
	seconds time.Duration // of a round, half of it for each store
	orders  int           // so far
	samples []floorSample
}

// floorSample is one round. Times are in microseconds for each order.
type floorSample struct {
	group, batch       float64
	redis, sql         float64
	aofBytes, walBytes float64
}

// bareScript decides nothing.
var bareScript = redis.NewScript(`
redis.call('DECRBY', KEYS[1], #ARGV / 3)
local buyers, messages = {}, {}
for i = 1, #ARGV, 3 do
  buyers[#buyers + 1], buyers[#buyers + 2] = ARGV[i], ARGV[i + 1]
  messages[#messages + 1] = ARGV[i + 2]
end
redis.call('HSET', KEYS[2], unpack(buyers))
redis.call('LPUSH', KEYS[3], unpack(messages))
return #messages`)

func newCostFloor(s *stage, cfg settings, c costCase) *costFloor {
	server := testenv.StartRedis(s, append([]string{"--appendonly", "yes", "--appendfsync", c.fsync}, noRewrites...)...)
	database := testenv.StartPostgres(s)
	f := &costFloor{redis: server.Client(), sql: s.connect(database.URL), seconds: cfg.seconds}
	_, err := f.sql.Exec(context.Background(), `CREATE TABLE bare
		(id bigint PRIMARY KEY, sale_id text NOT NULL, buyer text NOT NULL, slot int NOT NULL, serial bigint NOT NULL)`)
	s.check(err)
	f.redisAt, f.sqlAt = newMeter("Redis", redisPID(s, f.redis)), newMeter("PostgreSQL", database.Pid())
	return f
}

// round measures one round with groups and batches of the sizes that sluice had. Round 0 does not count.
func (f *costFloor) round(ctx context.Context, round int, had costSample) (err error) {
	got := floorSample{group: max(had.figures[4], 1), batch: max(had.figures[5], 1)}
	if got.redis, got.aofBytes, err = f.queue(ctx, got.group, got.batch); err != nil {
		return err
	}
	if got.sql, got.walBytes, err = f.copy(ctx, got.batch); err != nil {
		return err
	}
	if round > 0 {
		f.samples = append(f.samples, got)
	}
	return nil
}

// sizes returns a function that returns whole numbers with this average.
func sizes(average float64) func() int {
	sum, n := 0, 0.0
	return func() int {
		n++
		size := int(math.Round(average*n)) - sum
		sum += size
		return size
	}
}

// queue returns the processor time of Redis and the bytes of its log for an order.
func (f *costFloor) queue(ctx context.Context, group, batch float64) (micro, bytes float64, err error) {
	logged, err := redisNumber(ctx, f.redis, "persistence", "aof_current_size")
	if err != nil {
		return 0, 0, err
	}
	size, before, queued, n := sizes(group), f.redisAt.read(), 0, int64(0)
	for end := time.Now().Add(f.seconds / 2); time.Now().Before(end); {
		var args []any
		for range size() {
			f.orders++
			number := strconv.Itoa(f.orders)
			id := strconv.Itoa(7_000_000_000_000_000 + f.orders)
			args = append(args, "buyer-"+number, id+":0123456789a", id+" sale 1 "+number+" buyer")
			queued++
			n++
		}
		if err := bareScript.Run(ctx, f.redis, []string{"stock", "buyers", "ready"}, args...).Err(); err != nil {
			return 0, 0, err
		}
		if queued >= int(batch) {
			if err := f.redis.RPopCount(ctx, "ready", queued).Err(); err != nil {
				return 0, 0, err
			}
			queued = 0
		}
	}
	used := f.redisAt.read()[0].sum() - before[0].sum()
	now, err := redisNumber(ctx, f.redis, "persistence", "aof_current_size")
	return micros(used, n), (now - logged) / float64(n), err
}

// copy returns the processor time of PostgreSQL and the bytes of its log for an order.
func (f *costFloor) copy(ctx context.Context, batch float64) (micro, bytes float64, err error) {
	var logged, logEnd int64
	wal := func(n *int64) error {
		return f.sql.QueryRow(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint").Scan(n)
	}
	if _, err := f.sql.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, 0, err
	}
	if err := wal(&logged); err != nil {
		return 0, 0, err
	}
	size, before, n := sizes(batch), f.sqlAt.read(), int64(0)
	for end := time.Now().Add(f.seconds / 2); time.Now().Before(end); {
		rows := pgx.CopyFromSlice(size(), func(int) ([]any, error) {
			f.orders++
			id := int64(f.orders)
			return []any{7_000_000_000_000_000 + id, "sale", "buyer-" + strconv.Itoa(f.orders), 1, id}, nil
		})
		copied, err := f.sql.CopyFrom(ctx, pgx.Identifier{"bare"}, []string{"id", "sale_id", "buyer", "slot", "serial"}, rows)
		if err != nil {
			return 0, 0, err
		}
		n += copied
	}
	used := f.sqlAt.read()[0].sum() - before[0].sum()
	if err := wal(&logEnd); err != nil {
		return 0, 0, err
	}
	return micros(used, n), float64(logEnd-logged) / float64(n), nil
}

// String returns the medians of the rounds, and their range.
func (f *costFloor) String() string {
	of := func(value func(floorSample) float64) string { return middle(values(f.samples, value)) }
	group := of(func(s floorSample) float64 { return s.group })
	batch := of(func(s floorSample) float64 { return s.batch })
	inRedis := of(func(s floorSample) float64 { return s.redis })
	inSQL := of(func(s floorSample) float64 { return s.sql })
	aof := of(func(s floorSample) float64 { return s.aofBytes })
	wal := of(func(s floorSample) float64 { return s.walBytes })
	return fmt.Sprintf("stores alone: Redis %s us and %s bytes of AOF, groups of %s", inRedis, aof, group) +
		fmt.Sprintf("; PostgreSQL %s us and %s bytes of WAL, batches of %s", inSQL, wal, batch)
}
