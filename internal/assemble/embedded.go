package assemble

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// StartEmbeddedRedis runs a Redis in this process, on a loopback port, until stop is called.
func StartEmbeddedRedis(ctx context.Context) (url string, stop func(), err error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return "", nil, fmt.Errorf("embedded Redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	const step = 250 * time.Millisecond
	go every(ctx, step, func() { m.FastForward(step) }) // it expires keys only when its clock is moved
	return "redis://" + m.Addr() + "/0", func() { cancel(); m.Close() }, nil
}

// Undelivered returns every order that is in Redis and not a row, queued or dead, for RestoreUndelivered.
func (b *Backend) Undelivered(ctx context.Context) ([]byte, error) {
	all, err := b.stores.sales.SaleSummaries(ctx)
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, s := range all {
		for _, part := range spread.PartsOf(s.Sale) {
			units, err := b.Stock.CountUnits(ctx, part)
			if err != nil {
				return nil, err
			}
			units.InFlight(func(m keyspace.Message) { text = append(text, keyspace.EncodeMessage(m)+"\n"...) })
		}
	}
	return text, nil
}

// RestoreUndelivered queues what Undelivered returned, except what is a row by now, in a Redis that is not verified
// yet. It must run before sales are loaded, so that these orders are counted.
func (s *Stores) RestoreUndelivered(ctx context.Context, text []byte) error {
	var messages []keyspace.Message
	var ids []sale.OrderID
	for line := range bytes.Lines(text) {
		m, err := keyspace.DecodeMessage(strings.TrimSpace(string(line)))
		if err != nil {
			return fmt.Errorf("%q is not an order", line)
		}
		messages, ids = append(messages, m), append(ids, m.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := s.orders.Statuses(ctx, ids)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if _, isRow := rows[m.ID]; isRow {
			continue
		}
		shard := s.space.ShardOfSegment(m.SaleID, spread.SegmentOf(m.Serial))
		q := queue.NewList(s.guards.Of(shard).Raw(), shard, queue.Config{})
		if err := q.Push(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
