package salechange

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Times of a Receiver.
const (
	pingAfter = 5 * time.Second // of silence: a connection that is cut without a word is noticed after twice that
	firstWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
)

// Receiver subscribes to Redis and passes notifications to a Hub. After an error it subscribes again with growing
// delays.
type Receiver struct {
	client  *redis.Client
	space   keyspace.Space
	hub     *Hub
	metrics *Metrics
	log     *slog.Logger
	ping    time.Duration
}

// NewReceiver returns a Receiver. It does not connect. metrics and log may be nil. The client need not be verified by
// the guard, because no decision depends on a notification.
func NewReceiver(client *redis.Client, space keyspace.Space, hub *Hub, metrics *Metrics, log *slog.Logger) *Receiver {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	if log == nil {
		log = slog.Default()
	}
	return &Receiver{client: client, space: space, hub: hub, metrics: metrics, log: log, ping: pingAfter}
}

// Run listens until ctx ends; it returns nil.
func (r *Receiver) Run(ctx context.Context) error {
	wait := firstWait
	told := false
	for ctx.Err() == nil {
		heard, err := r.listen(ctx)
		r.metrics.up.Set(0)
		if heard {
			wait, told = firstWait, false
		}
		if !told && ctx.Err() == nil {
			r.log.Warn("changes of sales are not signalled here and show later; trying again", "err", err)
			told = true
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		wait = min(2*wait, mostWait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

// listen receives over one connection until it fails. heard reports whether the subscription succeeded.
func (r *Receiver) listen(ctx context.Context) (heard bool, err error) {
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
		message, err := sub.ReceiveTimeout(ctx, r.ping)
		var late net.Error
		switch {
		case err != nil && !silent && subscribed == len(channels) && errors.As(err, &late) && late.Timeout():
			if err := sub.Ping(ctx); err != nil {
				return true, err
			}
			silent = true
			continue
		case err != nil:
			return subscribed == len(channels), err
		}
		silent = false
		switch m := message.(type) {
		case *redis.Subscription:
			if subscribed++; subscribed == len(channels) {
				r.metrics.up.Set(1)
				r.log.Debug("changes of sales are signalled here")
			}
		case *redis.Message:
			s, err := Decode(m.Payload)
			if err != nil {
				r.metrics.received.WithLabelValues("unknown").Inc()
				continue
			}
			r.metrics.received.WithLabelValues(string(s.Type)).Inc()
			r.hub.Publish(s)
		}
	}
}
