package salechange

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
	"sluice/internal/metric"
)

// pingAfter is how long a connection may be silent before a ping tests it. A connection that was cut without notice is
// detected after twice that.
const pingAfter = 5 * time.Second

// Receiver subscribes to the notifications of every shard and passes them to a Hub. After an error it subscribes again
// with growing delays.
type Receiver struct {
	client   func(keyspace.Shard) redisconn.Client
	space    keyspace.Space
	hub      *Hub
	log      *slog.Logger
	shards   atomic.Int64 // that have a subscription
	up       prometheus.Gauge
	received *prometheus.CounterVec
}

// NewReceiver returns a Receiver. It does not connect. client returns a client of the server of a shard. The guard need
// not have verified that server, because no decision depends on a notification. reg and log may be nil.
func NewReceiver(
	client func(keyspace.Shard) redisconn.Client, space keyspace.Space, hub *Hub, reg prometheus.Registerer,
	log *slog.Logger,
) *Receiver {
	metrics := metric.With(reg)
	r := &Receiver{
		client: client, space: space, hub: hub, log: cmp.Or(log, slog.Default()),
		up: metrics.Gauge("sluice_sale_notifications_up",
			"Whether this process receives sale notifications; without them it sees changes within a second."),
		received: metrics.Counters("sluice_sale_notifications_received_total",
			"Sale notifications received, by type; unknown: not of this version.", "type", "unknown"),
	}
	for _, t := range types {
		r.received.WithLabelValues(string(t))
	}
	return r
}

// Run listens until ctx ends; it returns nil.
func (r *Receiver) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, shard := range r.space.All() {
		wg.Go(func() { r.follow(ctx, shard) })
	}
	wg.Wait()
	return nil
}

// follow listens to one shard until ctx ends.
func (r *Receiver) follow(ctx context.Context, shard keyspace.Shard) {
	retry := loop.Backoff{Log: r.log, What: "receiving sale notifications"}
	if len(r.space.All()) > 1 {
		retry.Log = r.log.With("shard", int(shard))
	}
	for ctx.Err() == nil {
		err := r.listen(ctx, shard, &retry)
		retry.Failed(ctx, err)
	}
}

// subscribed changes the number of shards with a subscription.
func (r *Receiver) subscribed(change int64) {
	up := 0.0
	if r.shards.Add(change) == int64(len(r.space.All())) {
		up = 1
	}
	r.up.Set(up)
}

// listen receives over one connection until it fails.
func (r *Receiver) listen(ctx context.Context, shard keyspace.Shard, retry *loop.Backoff) error {
	sub := redisconn.Subscribe(ctx, r.client(shard), shard.SaleNotifications())
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // ReceiveTimeout does not return when ctx ends
	defer stop()
	subscribed, silent := false, false
	defer func() {
		if subscribed {
			r.subscribed(-1)
		}
	}()
	for {
		message, err := sub.ReceiveTimeout(ctx, pingAfter)
		var late net.Error
		if err != nil && !silent && subscribed && errors.As(err, &late) && late.Timeout() {
			silent = true
			err = sub.Ping(ctx)
		} else {
			silent = false
		}
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if !subscribed {
				subscribed = true
				r.subscribed(1)
				retry.Succeeded()
			}
		case *redis.Message:
			n, ok := decode(m.Payload)
			if !ok {
				r.received.WithLabelValues("unknown").Inc()
				continue
			}
			r.received.WithLabelValues(string(n.Type)).Inc()
			r.hub.Publish(n)
		}
	}
}
