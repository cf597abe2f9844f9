package queuebench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
)

// line is a queue under test.
type line interface {
	worker.Queue
	Push(ctx context.Context, messages ...queue.Message) error
	Reclaim(ctx context.Context, limit int) (leases int, err error)
	Stats(ctx context.Context) (queue.Stats, error)
}

// subject is a driver with its admission.
type subject interface {
	driver
	costs
	// kill ends what holds the messages with no warning and starts it again; false: it cannot.
	kill(ctx context.Context) (bool, error)
}

// driver is how a subject is used.
type driver interface {
	label() string
	// open empties it and puts a sale of stock units on the market; reopen finds what is there.
	open(ctx context.Context, stock int, lease time.Duration) error
	reopen(lease time.Duration)
	queue() line
	buy(ctx context.Context, n int) error
}

// costs are what a subject takes.
type costs interface {
	// held is how many bytes each of n waiting messages takes.
	held(ctx context.Context, n int) (float64, error)
	// left is how many messages could still be read.
	left(ctx context.Context) (int64, error)
	// used is the processor time and the bytes logged by Redis so far; a log below 0: there is none.
	used(ctx context.Context) (cpu time.Duration, log float64, err error)
}

const saleID = "bench"

func buyer(n int) string { return "buyer-" + strconv.Itoa(n) }

// redisSubject is the product as it runs: the list or the stream, and admission in front of it.
type redisSubject struct {
	server *server
	name   string
	stream bool

	line  line
	admit *admission.Admitter
	shard keyspace.Shard
}

func (s *redisSubject) label() string { return s.name }
func (s *redisSubject) queue() line   { return s.line }

func (s *redisSubject) open(ctx context.Context, stock int, lease time.Duration) error {
	if err := s.server.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	s.reopen(lease)
	space := keyspace.Space{}
	pipe, err := redisconn.NewPipeline(s.server.client)
	if err != nil {
		return err
	}
	s.admit = admission.NewAdmitter(pipe, space, admission.NewSequencer(s.server.client, space, time.Now))
	if s.stream {
		s.admit.IntoStream()
	}
	return admission.NewStock(s.server.client, space).Load(ctx, sale.Sale{
		ID: saleID, Title: "Bench", Price: sale.Price{Amount: 1, Currency: "EUR"}, Stock: int64(stock), PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour), Switch: sale.On, Version: 1,
	}, func(func(sale.Order) error) error { return nil })
}

func (s *redisSubject) reopen(lease time.Duration) {
	cfg := queue.Config{Lease: lease}
	if s.stream {
		s.line = queue.NewStream(s.server.client, s.shard, cfg)
	} else {
		s.line = queue.NewList(s.server.client, s.shard, cfg)
	}
}

func (s *redisSubject) buy(ctx context.Context, n int) error {
	d, err := s.admit.Admit(ctx, admission.Request{SaleID: saleID, Buyer: buyer(n), Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
	if err == nil && d.Outcome != sale.Accepted {
		err = fmt.Errorf("a purchase was answered %s", d.Outcome)
	}
	return err
}

func (s *redisSubject) held(ctx context.Context, n int) (float64, error) {
	key := s.shard.Ready()
	if s.stream {
		key = s.shard.Orders()
	}
	bytes, err := s.server.client.MemoryUsage(ctx, key, 0).Result()
	return float64(bytes) / float64(n), err
}

func (s *redisSubject) left(ctx context.Context) (int64, error) {
	if s.stream {
		return s.server.client.XLen(ctx, s.shard.Orders()).Result()
	}
	return s.server.client.LLen(ctx, s.shard.Ready()).Result()
}

func (s *redisSubject) used(ctx context.Context) (cpu time.Duration, log float64, err error) {
	text, err := s.server.client.Info(ctx, "cpu", "persistence").Result()
	if err != nil {
		return 0, 0, err
	}
	log = -1
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseFloat(value, 64) // other lines are no numbers
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			cpu += time.Duration(n * float64(time.Second))
		case "aof_current_size":
			log = n
		}
	}
	return cpu, log, nil
}

func (s *redisSubject) kill(ctx context.Context) (bool, error) { return s.server.crash(ctx) }

// memorySubject is the queue in this process, with the till in front of it.
type memorySubject struct {
	line *queue.Memory
	till *queue.Till
	ids  atomic.Uint32
}

func (s *memorySubject) label() string { return "memory" }
func (s *memorySubject) queue() line   { return s.line }

func (s *memorySubject) open(_ context.Context, stock int, lease time.Duration) error {
	s.reopen(lease)
	s.till = queue.NewTill(s.line)
	s.till.Open(saleID, int64(stock), 1)
	return nil
}

// reopen finds nothing: what was there was in the process.
func (s *memorySubject) reopen(lease time.Duration) {
	s.line = queue.NewMemory(10_000_000, queue.Config{Lease: lease})
}

func (s *memorySubject) buy(_ context.Context, n int) error {
	if outcome, _ := s.till.Buy(saleID, buyer(n), "k", sale.NewOrderID(time.Now(), s.ids.Add(1))); outcome != sale.Accepted {
		return fmt.Errorf("a purchase was answered %s", outcome)
	}
	return nil
}

// held fills a queue of its own: the heap of this process holds much else.
func (s *memorySubject) held(ctx context.Context, n int) (float64, error) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	q := queue.NewMemory(n, queue.Config{})
	for i := range n {
		if !q.Offer(message(i)) {
			return 0, errors.New("the queue is full")
		}
	}
	grown := heap() - before
	runtime.KeepAlive(q)
	return grown / float64(n), ctx.Err()
}

func (s *memorySubject) left(ctx context.Context) (int64, error) {
	stats, err := s.line.Stats(ctx)
	return stats.Ready + stats.Leased, err
}

func (s *memorySubject) used(context.Context) (time.Duration, float64, error) { return 0, -1, nil }
func (s *memorySubject) kill(context.Context) (bool, error)                   { return true, nil }

func message(n int) queue.Message {
	return queue.Message{
		ID: sale.NewOrderID(time.Now(), uint32(n)), SaleID: saleID, Buyer: buyer(n), Nth: 1, Serial: int64(n) + 1, Status: sale.StatusQueued,
	}
}
