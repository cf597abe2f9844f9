package salechange

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/internal/loop"
)

// pingAfter is how long a connection may be silent: one that is cut without notice is noticed after twice that.
const pingAfter = 5 * time.Second

// Receiver subscribes to Redis and passes notifications to a Hub. After an error it subscribes again with growing
// delays.
type Receiver struct {
	client  *redis.Client
	space   keyspace.Space
	hub     *Hub
	metrics *Metrics
	retry   loop.Backoff
}

// NewReceiver returns a Receiver. It does not connect. metrics and log may be nil. The client need not be verified by
// the guard, because no decision depends on a notification.
func NewReceiver(client *redis.Client, space keyspace.Space, hub *Hub, metrics *Metrics, log *slog.Logger) *Receiver {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	retry := loop.Backoff{Log: cmp.Or(log, slog.Default()), What: "receiving sale notifications"}
	return &Receiver{client, space, hub, metrics, retry}
}

// Run listens until ctx ends; it returns nil.
func (r *Receiver) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.listen(ctx)
		r.metrics.up.Set(0)
		r.retry.Failed(ctx, err)
	}
	return nil
}

// listen receives over one connection until it fails.
func (r *Receiver) listen(ctx context.Context) error {
	shards := r.space.All()
	channels := make([]string, len(shards))
	for i, shard := range shards {
		channels[i] = shard.SaleNotifications()
	}
	sub := r.client.Subscribe(ctx, channels...)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // Receive does not notice
	defer stop()
	subscribed, silent := 0, false
	for {
		message, err := sub.ReceiveTimeout(ctx, pingAfter)
		var late net.Error
		if err != nil && !silent && subscribed == len(channels) && errors.As(err, &late) && late.Timeout() {
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
			if subscribed++; subscribed == len(channels) {
				r.metrics.up.Set(1)
				r.retry.Succeeded()
			}
		case *redis.Message:
			n, err := Decode(m.Payload)
			if err != nil {
				r.metrics.received.WithLabelValues("unknown").Inc()
				continue
			}
			r.metrics.received.WithLabelValues(string(n.Type)).Inc()
			r.hub.Publish(n)
		}
	}
}
