package adminhttp

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/queue"
	"sluice/backend/web/httpserver"
)

// queueBody is the sum over all shards, and each shard.
type queueBody struct {
	countsBody
	AcceptedPerSecond *float64 `json:"accepted_per_second"` // null: fewer than two requests within a minute
	OrderedPerSecond  *float64 `json:"ordered_per_second"`
	// until every accepted order is a row; null: unknown, or nothing leaves the queue
	DrainSeconds *float64    `json:"drain_seconds"`
	MaxReady     int64       `json:"max_ready"` // per shard: with as many ready orders, purchases get 503
	Shards       []shardBody `json:"shards"`
}

type countsBody struct {
	Ready            int64   `json:"ready"`
	Delayed          int64   `json:"delayed"`
	Leased           int64   `json:"leased"`
	Leases           int64   `json:"leases"`
	Dead             int64   `json:"dead"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
}

// shardBody is one shard.
type shardBody struct {
	Shard int `json:"shard"`
	countsBody
	DrainedPerSecond *float64 `json:"drained_per_second"` // null: unknown
	DrainSeconds     *float64 `json:"drain_seconds"`
}

func countsOf(s queue.Stats) countsBody {
	return countsBody{
		Ready:            s.Ready,
		Delayed:          s.Delayed,
		Leased:           s.Leased,
		Leases:           s.Leases,
		Dead:             s.Dead,
		OldestAgeSeconds: s.OldestAge.Seconds(),
	}
}

func (h *handlers) queue(ctx context.Context, c *fiber.Ctx, _ string) error {
	shards, err := h.cfg.Queue.ByShard(ctx)
	if err != nil {
		return err
	}
	body := queueBody{
		countsBody: countsOf(queue.Sum(shards)), DrainSeconds: drainSeconds(h.cfg.Pace), MaxReady: h.cfg.MaxReady,
		Shards: make([]shardBody, len(shards)),
	}
	for i, s := range shards {
		shard := shardBody{Shard: i, countsBody: countsOf(s)}
		pace := h.cfg.Pace.Shard(i)
		if pace.Known {
			shard.DrainedPerSecond = &pace.PerSecond
		}
		if pace.Drains {
			within := pace.Within.Seconds()
			shard.DrainSeconds = &within
		}
		body.Shards[i] = shard
	}
	// While SQL is down, the counts are returned without the rates.
	if views, err := h.cfg.Admin.List(ctx); err == nil {
		body.AcceptedPerSecond, body.OrderedPerSecond = h.rates.update(views)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

// drainSeconds returns the time until the queue is empty, or nil.
func drainSeconds(p Pace) *float64 {
	d, ok := p.Within()
	if !ok {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}
