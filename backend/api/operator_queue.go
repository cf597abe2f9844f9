package api

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/queue"
)

// queueBody is the whole queue, and each of its shards.
type queueBody struct {
	countsBody
	AcceptedPerSecond *float64    `json:"accepted_per_second"` // null until somebody has asked twice within a minute
	OrderedPerSecond  *float64    `json:"ordered_per_second"`
	DrainSeconds      *float64    `json:"drain_seconds"` // every order accepted by now is in SQL within; null: not known, or nothing leaves the queue
	MaxReady          int64       `json:"max_ready"`     // of one shard: with so many ready, purchases of its sales are answered 503
	Shards            []shardBody `json:"shards"`
}

type countsBody struct {
	Ready            int64   `json:"ready"`
	Delayed          int64   `json:"delayed"`
	Leased           int64   `json:"leased"`
	Leases           int64   `json:"leases"`
	Dead             int64   `json:"dead"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
}

// shardBody is one shard at one instant.
type shardBody struct {
	Shard int `json:"shard"`
	countsBody
	DrainedPerSecond *float64 `json:"drained_per_second"` // null: not known
	DrainSeconds     *float64 `json:"drain_seconds"`
}

func countsOf(s queue.Stats) countsBody {
	return countsBody{Ready: s.Ready, Delayed: s.Delayed, Leased: s.Leased, Leases: s.Leases, Dead: s.Dead, OldestAgeSeconds: s.OldestAge.Seconds()}
}

func (o *operator) queue(ctx context.Context, c *fiber.Ctx, _ string) error {
	shards, err := o.cfg.Queue.ByShard(ctx)
	if err != nil {
		return err
	}
	body := queueBody{countsBody: countsOf(sumOf(shards)), DrainSeconds: drain(o.cfg.Pace), MaxReady: o.cfg.MaxReady, Shards: make([]shardBody, len(shards))}
	for i, s := range shards {
		shard := shardBody{Shard: i, countsBody: countsOf(s)}
		pace := o.cfg.Pace.Shard(i)
		if pace.Known {
			shard.DrainedPerSecond = &pace.PerSecond
		}
		if pace.Drains {
			within := pace.Within.Seconds()
			shard.DrainSeconds = &within
		}
		body.Shards[i] = shard
	}
	// With SQL down the depths are what matters most, so they come without the rates.
	if views, err := o.cfg.Desk.List(ctx); err == nil {
		body.AcceptedPerSecond, body.OrderedPerSecond = o.rates.since(views)
	}
	return sendJSON(c, fiber.StatusOK, body)
}

func drain(p Pace) *float64 {
	d, ok := p.Within()
	if !ok {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}
