package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
)

// watermillSetting is the number of concurrent publishers, and of subscribers of each group, which handle one message
// at a time.
type watermillSetting struct{ publishers, subscribers int }

func (w watermillSetting) String() string {
	return fmt.Sprintf("Watermill, %d publishers, %d subscribers", w.publishers, w.subscribers)
}

var watermillSettings = []watermillSetting{{4, 4}, {8, 8}, {16, 16}, {32, 32}}

// watermill reads the same outbox as the relay, a batch of changes at a time, and publishes them through Watermill's
// Redis streams. It does not keep the order of events, leaves published changes in SQL, and is woken immediately, so
// that only the driver is measured.
func (r *eventRun) watermill(c watermillSetting) eventSide {
	return eventSide{c.String(), func(ctx context.Context, handled func(string)) error {
		const topic = "orders"
		size := 2*len(eventGroups)*c.subscribers + c.publishers + 8
		client := redis.NewClient(&redis.Options{Addr: r.redis.Addr, PoolSize: size})
		defer client.Close()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var running sync.WaitGroup
		defer running.Wait()
		for _, group := range eventGroups {
			for range c.subscribers {
				sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
					Client: client, ConsumerGroup: group, DisableIndefiniteInitialBlock: true, BlockTime: 100 * time.Millisecond,
				}, watermill.NopLogger{})
				if err != nil {
					return err
				}
				messages, err := sub.Subscribe(ctx, topic)
				if err != nil {
					return err
				}
				running.Go(func() {
					for m := range messages {
						if e, err := events.Decode(string(m.Payload)); err == nil {
							handled(e.ID)
						}
						m.Ack()
					}
				})
			}
		}
		publishers := make([]*redisstream.Publisher, c.publishers)
		for i := range publishers {
			var err error
			config := redisstream.PublisherConfig{Client: client}
			if publishers[i], err = redisstream.NewPublisher(config, watermill.NopLogger{}); err != nil {
				return err
			}
		}
		for after := int64(0); ctx.Err() == nil; {
			changes, err := events.NewStore(r.DB).Changes(ctx, after, r.batch)
			if err != nil && ctx.Err() == nil {
				return err
			}
			if len(changes) == 0 {
				select {
				case <-r.wake:
				case <-ctx.Done():
				}
				continue
			}
			all := make([]*message.Message, len(changes))
			for i, e := range changes {
				all[i] = message.NewMessage(e.ID, []byte(e.Encode()))
			}
			var sending errgroup.Group
			parts := slices.Collect(slices.Chunk(all, (len(all)+c.publishers-1)/c.publishers))
			for i, part := range parts {
				sending.Go(func() error { return publishers[i].Publish(topic, part...) })
			}
			if err := sending.Wait(); err != nil && ctx.Err() == nil {
				return err
			}
			after = changes[len(changes)-1].Position
		}
		return nil
	}}
}
