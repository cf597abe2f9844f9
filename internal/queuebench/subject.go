package queuebench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// subject is a driver with the admission in front of it.
type subject interface {
	// The methods of a queue.List.
	Push(ctx context.Context, messages ...queue.Message) error
	Register(ctx context.Context, name string) (queue.Consumer, error)
	TakeAs(ctx context.Context, id string, limit int, ack string) (b queue.Batch, lost bool, err error)
	Release(ctx context.Context, batchID string) (lost bool, err error)
	Wait(ctx context.Context, timeout time.Duration) (woken bool, err error)
	Stats(ctx context.Context) (queue.Stats, error)

	label() string
	// open empties the queue and opens a sale of stock units.
	open(ctx context.Context, stock int, lease time.Duration) error
	buy(ctx context.Context, n int) error

	// held returns the bytes that each of n waiting messages takes.
	held(ctx context.Context, n int) (float64, error)
	// left returns the number of messages that can still be read.
	left(ctx context.Context) (int64, error)
	// used returns Redis's processor time and the size of its append-only file so far; a size below 0 means that
	// there is no file.
	used(ctx context.Context) (cpu time.Duration, log float64, err error)
	// kill ends the process that holds the messages without warning and starts it again. It returns false where it
	// cannot.
	kill(ctx context.Context) (bool, error)
}

const saleID = "bench"

func buyer(n int) string { return "buyer-" + strconv.Itoa(n) }

// redisSubject is a driver of the product: the list or the stream behind the product's admission.
type redisSubject struct {
	*queue.List

	server *server
	name   string
	stream bool
	admit  *admission.Admitter
	shard  keyspace.Shard
}

func (s *redisSubject) label() string { return s.name }

func (s *redisSubject) open(ctx context.Context, stock int, lease time.Duration) error {
	if err := s.server.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	s.List = queue.NewList(s.server.client, s.shard, queue.Config{Lease: lease, Stream: s.stream})
	space := keyspace.Space{}
	pipe, err := redisconn.NewPipeline(s.server.client)
	if err != nil {
		return err
	}
	s.admit, err = admission.NewAdmitter(admission.Config{
		Client: pipe, Space: space, IDs: admission.NewSequencer(s.server.client, space, time.Now), Stream: s.stream,
	})
	if err != nil {
		return err
	}
	return admission.NewStock(admission.StockConfig{Client: s.server.client, Space: space}).Load(ctx, sale.Sale{
		ID: saleID, Title: "Bench", Price: sale.Price{Amount: 1, Currency: "EUR"}, Stock: int64(stock), PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour), Switch: sale.On, Version: 1,
	}, func(context.Context, spread.Part, func(sale.Order) error) error { return nil })
}

func (s *redisSubject) buy(ctx context.Context, n int) error {
	d, err := s.admit.Admit(ctx, admission.Request{
		SaleID: saleID, Buyer: buyer(n), Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
	})
	if err == nil && d.Outcome != sale.Accepted {
		err = fmt.Errorf("a purchase returned %s", d.Outcome)
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
	text, err := s.server.infoOfWritten(ctx)
	if err != nil {
		return 0, 0, err
	}
	log = -1
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, _ := strconv.ParseFloat(value, 64) // other lines have no numbers
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

func message(n int) queue.Message {
	return queue.Message{
		ID: sale.NewOrderID(time.Now(), uint32(n)), SaleID: saleID, Buyer: buyer(n), Slot: 1, Serial: int64(n) + 1,
		Status: sale.StatusQueued,
	}
}
